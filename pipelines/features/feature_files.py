"""Feature files of any program: find the files of a folder, describe them, and read their rows."""

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import MOST, STORED, Clock
from lstr.errors import CheckpointError, ConfigError, RecipeError, brief
from lstr.extractors.streams import MODEL_STREAMS
from lstr.files.arrays import NUMBERS, open_array, read_header

FORMS = "a folder of .npy, .npz or .pt files, one array (rows, width) for each video"
SUFFIXES = (".npy", ".npz", ".pt", ".pth")
PICKLES = (".pkl", ".pickle")
NOT_FEATURES = ("_fps.npy", "_timestamps_ms.npy")  # the program video_features writes them next to the features
MODELS = ("checkpoint", "best", "resume", "calibration", "scores")  # torch files in the folder of a run
NOTES = (".txt", ".md", ".csv", ".tsv")
PREFIX = "features."
DECIMAL = r"\d{1,9}(\.\d{1,20})?(e-\d{1,2})?"
NUMBER = re.compile(f"{DECIMAL}(/{DECIMAL})?")
# Frame rates of television in common notation, and their exact values.
NTSC = {"23.976": "24000/1001", "23.98": "24000/1001", "29.97": "30000/1001", "59.94": "60000/1001"}
MAX_DENOMINATOR = 1001  # for rates with many decimals: 29.97002997002997 is 30000/1001
RATE_HINT = "the rate is rows per second, the offset seconds: --set features.rate=30000/1001 --set features.offset=0.4."

# Errors that reading a damaged file can raise.
UNUSABLE = (OSError, ValueError, RuntimeError, KeyError, struct.error, zipfile.BadZipFile, zlib.error, CheckpointError)
LOCAL_HEADER_BYTES = 30  # fixed size of the header of a zip member, before its name
MAX_UNPACKED_BYTES = 16 * 2**30  # maximum size of one video's features in a compressed file
REPAIR = "make the features of this video again, or remove the file."


@dataclass(frozen=True)
class Stated:
    """The user's description of a folder of features; empty entries are unknown."""

    rate: str = ""  # rows per second, such as `7.5`, `30/4` or `30000/1001`
    offset: str = ""  # seconds into the video at which the first row's chunk begins
    name: str = ""  # description of the features for the user: `I3D, Kinetics`

    def __post_init__(self) -> None:
        """Raise ConfigError for impossible values."""
        if self.offset and not self.rate:
            raise ConfigError("features.offset is given without features.rate.", RATE_HINT)
        self.clock  # noqa: B018 - reading it checks it

    @property
    def clock(self) -> Clock | None:
        """The clock of the rows; None without a rate."""
        if not self.rate:
            return None
        numbers = []
        for name, stated in (("rate", self.rate), ("offset", self.offset or "0")):
            text = NTSC.get(stated.strip(), stated.strip())
            over, _, under = text.partition("/")
            if not NUMBER.fullmatch(text) or (under and not Fraction(under)):
                raise ConfigError(f"features.{name} is {brief(text)}, not a number from 0 up.", RATE_HINT)
            number = Fraction(over) / Fraction(under or 1)
            # a model stores a number with many decimals as the nearest fraction with a small denominator
            numbers.append(number if STORED.fullmatch(str(number)) else number.limit_denominator(MAX_DENOMINATOR))
        if not 0 < numbers[0] <= MOST:
            raise ConfigError(f"features.rate is {brief(self.rate)}.", RATE_HINT)
        return Clock(*numbers)

    def over(self, other: "Stated") -> "Stated":
        """Return this description, completed by another one."""
        return replace(other, **{name: value for name, value in vars(self).items() if value})


NOTHING = Stated()


def split_settings(settings: Mapping[str, str]) -> tuple[Stated, dict[str, str]]:
    """Split settings into the description from `features.NAME`, and the other settings. Raises ConfigError."""
    own = {name.removeprefix(PREFIX): str(text) for name, text in settings.items() if name.startswith(PREFIX)}
    names = [field.name for field in fields(Stated)]
    if unknown := next((name for name in own if name not in names), None):
        choices = ", ".join(PREFIX + name for name in names)
        raise ConfigError(f"Unknown setting: {PREFIX}{unknown}.", f"choose one of: {choices}.")
    return Stated(**own), {name: text for name, text in settings.items() if not name.startswith(PREFIX)}


def stream_folders(path: Path, named: Mapping[str, str]) -> dict[str, Path]:
    """Return the subfolders with the names of a model's streams: `rgb` and `flow`, or these with a suffix after `_`."""
    found = {}
    for stream in MODEL_STREAMS:
        name = named.get(stream)
        called = [p for p in sorted(path.glob(name or f"{stream}*")) if name or p.stem.partition("_")[0] == stream]
        fitting = [p for p in called if p.is_dir() and files_below(p)]
        if len(fitting) > 1:
            names = ", ".join(p.name for p in fitting)
            raise RecipeError(
                f"{path} has several folders of {stream} features: {names}.",
                f"choose one with --set {stream}_features={fitting[0].name}.",
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
    """Return the files of each stream by video id, from `folders`, or from `path` if `folders` is empty.

    Files in `path` are RGB, or both streams if all names end in _rgb or _flow. Raises RecipeError for a video with two
    files.
    """
    endings = dict.fromkeys(folders, "")
    if not folders:
        stems = [file.stem for file in files_below(path)]
        endings = {stream: f"_{stream}" for stream in MODEL_STREAMS}
        if {"".join(stem.rpartition("_")[1:]) for stem in stems} != {*endings.values()}:
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
    # Skip hidden files: macOS writes ._ID.npy next to each file on foreign file systems.
    names = (p.relative_to(folder).as_posix() for p in folder.rglob(f"*{suffix}") if not p.name.startswith("."))
    return {name.removesuffix(suffix) for name in names}


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder that may be features, without targets and hidden files."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(NOT_FEATURES)
        and "target_perframe" not in path.relative_to(folder).parts
    )


def refuse_pickles(path: Path) -> None:
    """Raise RecipeError for a pickle, or a folder with pickles."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    pickles = [p for p in files if p.suffix.lower() in PICKLES and not p.name.startswith(".")]
    if pickles:
        raise RecipeError(
            f"{path} is a pickle." if path.is_file() else f"{path} contains pickles, such as {pickles[0].name}.",
            "reading one can run any code: if you trust it, write each video's array with numpy.save, and give the "
            "folder of the .npy files.",
        )


class ArrayFile(NamedTuple):
    """An array (rows, width) in a file."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    # Returns the whole array. It is called for each read, because a data set may have more files than a process can
    # memory-map; an array that cannot be mapped stays in memory after the first call.
    open: Callable[[], NDArray[Any]]


class FeatureRows:
    """Features (L, D) of a video as float32, from one or more arrays in files.

    Args:
        files: The arrays, joined along D. Without arrays, D is 0.
        length: L. The arrays may have more rows.
    """

    ndim = 2

    def __init__(self, files: Sequence[ArrayFile], length: int):
        self.files = files
        self.shape = (length, sum(file.shape[1] for file in files))
        # Float16 features stay float16, which is exact and needs half the memory.
        self.dtype = np.dtype(np.float16 if {file.dtype for file in files} == {np.dtype(np.float16)} else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        """Return rows by any numpy index. Raises RecipeError if they cannot be read, or are not finite."""
        # A model without a long memory requests no rows for it; do not open files then.
        if not self.files or (isinstance(key, np.ndarray) and not key.size):
            return np.broadcast_to(np.float32(0), self.shape)[key]
        parts = []
        for file in self.files:
            try:
                rows = np.asarray(file.open()[: len(self)][key], np.float32)
            except UNUSABLE as error:
                raise RecipeError(f"{file.path} can no longer be read ({error}).", "run the command again.") from error
            if not np.isfinite(rows).all():
                numbers, is_finite = np.atleast_1d(np.arange(len(self))[key]), np.isfinite(rows).all(axis=-1)
                raise RecipeError(
                    f"{file.path} row {numbers[~np.atleast_1d(is_finite)].min()} has values that are not finite.",
                    "make the features of this video again, or leave it out.",
                )
            parts.append(rows)
        return np.concatenate(parts, axis=-1, dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


def open_file(path: Path, hint: str = REPAIR) -> ArrayFile:
    """Open the array of features in an .npy, .npz, .pt or .pth file, without executing code in it.

    Raises RecipeError, with `hint`, if the file is missing or damaged or does not contain one array (rows, width).
    """
    try:
        if path.suffix == ".npy":
            mapped = open_array(path)
            order = "F" if np.isfortran(mapped) else "C"
            layout = (mapped.dtype, "r", int(mapped.offset), mapped.shape, order)
            file = ArrayFile(path, mapped.shape, mapped.dtype, partial(np.memmap, path, *layout))
        elif path.suffix == ".npz":
            file = _open_npz(path)
        else:
            array = _open_tensor(path)
            file = ArrayFile(path, array.shape, array.dtype, partial(_open_tensor, path))
    except UNUSABLE as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecipeError(f"{path} cannot be used: {reason}.", hint) from error
    if len(file.shape) != 2:
        raise RecipeError(f"{path} has the shape {file.shape}, not (rows, width).", "store one row for each chunk.")
    return file


def _open_npz(path: Path) -> ArrayFile:
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for info in archive.infolist():
            with archive.open(info) as member:
                headers[info.filename.removesuffix(".npy")] = info, read_header(member), member.tell()
        names = [
            name for name, (_, (shape, _, dtype), _) in headers.items() if len(shape) == 2 and dtype.kind in NUMBERS
        ]
        info, (shape, fortran, dtype), begin = headers[_only_name(names, path)]
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(LOCAL_HEADER_BYTES)[26:30])
        offset = info.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes + begin
        layout = (dtype, "r", offset, shape, "F" if fortran else "C")
        return ArrayFile(path, shape, dtype, partial(np.memmap, path, *layout))
    if info.file_size > MAX_UNPACKED_BYTES:
        raise ValueError(f"it claims {info.file_size:.3g} bytes once it is unpacked")

    @cache
    def unpack() -> NDArray[Any]:
        with zipfile.ZipFile(path) as archive:
            return np.frombuffer(archive.read(info.filename)[begin:], dtype).reshape(
                shape, order="F" if fortran else "C"
            )

    return ArrayFile(path, shape, dtype, unpack)


def _open_tensor(path: Path) -> NDArray[Any]:
    """Return the tensor of a torch file, or the only (rows, width) tensor in its dict, memory-mapped if possible."""

    import torch

    from lstr.loaded_checkpoint import check_deflated

    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        check_deflated(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # unpickling arbitrary bytes can raise any type
        raise RecipeError(
            f"{path} contains no tensor that can be read without running its code.",
            "save the tensor alone: torch.save(features, 'VIDEO.pt').",
        ) from error
    if isinstance(content, dict):
        tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor) and v.ndim == 2}
        content = tensors[_only_name([*tensors], path)]
    if not isinstance(content, torch.Tensor) or content.is_complex() or content.layout != torch.strided:
        raise RecipeError(f"{path} contains no tensor of real numbers.", REPAIR)
    content = content.detach()
    return (content.float() if content.dtype == torch.bfloat16 else content).numpy()  # numpy has no bfloat16


def _only_name(names: Sequence[str], path: Path) -> str:
    if len(names) != 1:
        shown = f"{len(names)} arrays (rows, width): {', '.join(names[:8])}" if names else "no array (rows, width)"
        raise RecipeError(f"{path} contains {shown}.", "save one array (rows, width) per file.")
    return names[0]
