"""Features that other programs wrote: their files, and what settings or a features.json say about them."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

from lstr.chunk import MOST, STORED, Clock
from lstr.errors import ConfigError, RecipeError, brief
from lstr.extractors.streams import MODEL_STREAMS
from lstr.files.content import read_text

FORMS = "a folder of .npy, .npz or .pt files, one array (rows, width) for each video"
SUFFIXES = (".npy", ".npz", ".pt", ".pth")
PICKLES = (".pkl", ".pickle")
NOT_FEATURES = ("_fps.npy", "_timestamps_ms.npy")  # video_features writes them next to the features of a video
MODELS = ("checkpoint", "best", "resume", "calibration", "scores")  # files of torch in the folder of a run
NOTES = (".txt", ".md", ".csv", ".tsv")
FILE = "features.json"
PREFIX = "features."
DECIMAL = r"\d{1,9}(\.\d{1,20})?(e-\d{1,2})?"
NUMBER = re.compile(f"{DECIMAL}(/{DECIMAL})?")
# Rates of television as people write them, and their exact values.
NTSC = {"23.976": "24000/1001", "23.98": "24000/1001", "29.97": "30000/1001", "59.94": "60000/1001"}
MAX_DENOMINATOR = 1001  # of a rate with many decimals: 29.97002997002997 is 30000/1001
HINT = "write the rows per second as a number, as in --set features.rate=7.5 or 30000/1001."


@dataclass(frozen=True)
class Stated:
    """What is said about a folder of features; empty for what is not said."""

    rate: str = ""
    """Rows per second, such as `7.5`, `30/4` or `30000/1001`"""
    offset: str = ""
    """Seconds into the video at which the first row's chunk begins"""
    name: str = ""
    """What the features are, for people: `I3D, Kinetics`"""

    def __post_init__(self) -> None:
        """Raise ConfigError for values that are not possible."""
        if self.offset and not self.rate:
            raise ConfigError("features.offset is given without features.rate.", HINT)
        self.clock  # noqa: B018 - reading it checks it

    @property
    def clock(self) -> Clock | None:
        """The times of the rows; None where the rate is not said."""
        if not self.rate:
            return None
        rate = _fraction("rate", self.rate)
        if not 0 < rate <= MOST:
            raise ConfigError(f"features.rate is {brief(self.rate)}.", HINT)
        return Clock(rate, _fraction("offset", self.offset or "0"))

    def over(self, other: "Stated") -> "Stated":
        """Return this, with what another one says about the rest."""
        return replace(other, **{name: value for name, value in vars(self).items() if value})


NOTHING = Stated()


def split_settings(settings: Mapping[str, str]) -> tuple[Stated, dict[str, str]]:
    """Return what settings `features.NAME` say, and the other settings. Raises ConfigError."""
    own = {name.removeprefix(PREFIX): str(text) for name, text in settings.items() if name.startswith(PREFIX)}
    return _build(own), {name: text for name, text in settings.items() if not name.startswith(PREFIX)}


def add_file(folder: Path, stated: Stated) -> Stated:
    """Return `stated`, with what the features.json of a folder says about the rest. Raises RecipeError.

    Such a file gives the rate, or `fps` and `stride`.
    """
    path = folder / FILE
    if not path.is_file():
        return stated
    try:
        values = json.loads(read_text(path))
        if not isinstance(values, dict):
            raise ValueError("it is not an object")
        known = {str(name): str(value) for name, value in values.items()}
        known |= {name: value for name, value in vars(stated).items() if value}
        fps, stride = known.pop("fps", ""), known.pop("stride", "")
        if fps and stride and "rate" not in known:
            known["rate"] = str(_storable(_fraction("fps", fps) / (_fraction("stride", stride) or 1)))
        return _build(known)
    except (OSError, ValueError, RecursionError, ConfigError) as error:
        raise RecipeError(
            f"{path} does not describe features ({error}).", 'write it as {"rate": 7.5}, or {"fps": 30, "stride": 4}.'
        ) from error


def _build(values: Mapping[str, str]) -> Stated:
    names = [field.name for field in fields(Stated)]
    if unknown := next((name for name in values if name not in names), None):
        choices = ", ".join(PREFIX + name for name in names)
        raise ConfigError(f"Unknown setting: {PREFIX}{unknown}.", f"Choose one of: {choices}.")
    return Stated(**values)


def _fraction(name: str, text: str) -> Fraction:
    text = NTSC.get(text.strip(), text.strip())
    over, _, under = text.partition("/")
    if not NUMBER.fullmatch(text) or (under and not Fraction(under)):
        raise ConfigError(f"features.{name} is {brief(text)}, not a number from 0 up.", HINT)
    return _storable(Fraction(over) / Fraction(under or 1))


def _storable(number: Fraction) -> Fraction:
    """Return a number as a model can store it: itself, or the nearest with a small denominator."""
    return number if STORED.fullmatch(str(number)) else number.limit_denominator(MAX_DENOMINATOR)


def stream_folders(path: Path, named: Mapping[str, str]) -> dict[str, Path]:
    """Return the folders of files that are called as a model's streams: `rgb` and `flow`, with `_` and more."""
    found = {}
    for stream in MODEL_STREAMS:
        name = named.get(stream)
        called = [p for p in sorted(path.glob(name or f"{stream}*")) if name or p.stem.partition("_")[0] == stream]
        fitting = [p for p in called if p.is_dir() and files_below(p)]
        if len(fitting) > 1:
            names = ", ".join(p.name for p in fitting)
            raise RecipeError(
                f"{path} has several {stream} features: {names}.",
                f"choose: --set {stream}_features={fitting[0].name}",
            )
        if name and not fitting:
            raise RecipeError(
                f"{path} has no recipe.json and no folder named {name}.",
                f"leave out {stream}_features, or name another folder.",
            )
        if fitting:
            found[stream] = fitting[0]
    return found


def find_files(path: Path, folders: Mapping[str, Path]) -> dict[str, dict[str, Path]]:
    """Return the files of each stream by video id: those of `folders`, or without any those of `path`.

    The files of `path` are RGB, or both streams if all names end in _rgb or _flow. Raises RecipeError for a video with
    two files.
    """
    endings = dict.fromkeys(folders, "")
    if not folders:
        stems = [file.stem for file in files_below(path)]
        endings = {stream: f"_{stream}" for stream in MODEL_STREAMS}
        of_both = all(any(stem.endswith(ending) for stem in stems) for ending in endings.values())
        if not of_both or not all(stem.endswith((*endings.values(),)) for stem in stems):
            endings = {"rgb": ""}
    found: dict[str, dict[str, Path]] = {stream: {} for stream in endings}
    for stream, ending in endings.items():
        folder = folders.get(stream, path)
        for file in files_below(folder):
            name = file.relative_to(folder).with_suffix("").as_posix()
            video_id = name.removesuffix(ending)
            if name.endswith(ending) and (other := found[stream].setdefault(video_id, file)) != file:
                raise RecipeError(f"{video_id!r} is in both {other} and {file}.", "keep one of them.")
    return found


def ids_below(folder: Path, suffix: str = ".npy") -> set[str]:
    """Return the paths of files below a folder, without their suffix."""
    # Not the hidden ones: macOS puts ._ID.npy next to each file on a disk of another system.
    names = (p.relative_to(folder).as_posix() for p in folder.rglob(f"*{suffix}") if not p.name.startswith("."))
    return {name.removesuffix(suffix) for name in names}


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder that may be features, without those of targets and hidden ones."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(NOT_FEATURES)
        and "target_perframe" not in path.relative_to(folder).parts
    )


def is_foreign(path: Path) -> bool:
    """Return whether a folder has folders of features, or only files of features and notes, but not a run's models."""
    with suppress(RecipeError):  # several of one stream: a person chooses
        if stream_folders(path, {}):
            return True
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
        known = [file for file in files if file.suffix in SUFFIXES and file.stem not in MODELS]
        others = {file.name for file in files} - {file.name for file in known}
        return bool(known) and all(name == FILE or name.endswith(NOTES) for name in others)
    return True


def refuse_pickles(path: Path) -> None:
    """Raise RecipeError for a pickle, or a folder that has some; the hint is a command that converts them."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    pickles = [p for p in files if p.suffix.lower() in PICKLES and not p.name.startswith(".")]
    if not pickles:
        return
    # one pickle for each video, or one with a table of all
    saved = f"[numpy.save(f'{{k}}.npy', v) for k, v in pickle.load(open('{pickles[0].name}', 'rb')).items()]"
    if len(pickles) > 1:
        saved = "import glob; [numpy.save(p[:-4], pickle.load(open(p, 'rb'))) for p in glob.glob('*.pkl')]"
    raise RecipeError(
        f"{path} is a pickle." if path.is_file() else f"{path} holds pickles, such as {pickles[0].name}.",
        f'reading one can run any code: where you trust it, run `python -c "import pickle, numpy; {saved}"` and give '
        "the folder of the .npy files.",
    )
