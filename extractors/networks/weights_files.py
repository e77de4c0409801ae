"""Weights files: where the networks of a recipe are, and the card in each file that says what it was trained on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.errors import WeightsError
from lstr.extractors.networks.archive import Archive, is_archive, is_member, member_path
from lstr.extractors.networks.published_files import Origin, PublishedFile, published_by_hash, read_manifest, sha256_of
from lstr.extractors.networks.weights_content import read_content
from lstr.extractors.streams import STREAMS
from lstr.files.content import Number, built
from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "lstr-weights/1"
ENTRY = "lstr"  # of a weights file, beside its state_dict
DESCRIPTION = "finetune.json"  # of a weights folder, written last
FOREIGN = "use only weights that `lstr finetune` wrote, or that their authors published."


@dataclass(frozen=True)
class ModelCard:
    """The JSON in a weights file; a copy of the file still has it."""

    name: str
    """Name of the weights folder, and of the feature directories."""
    stream: str
    """`rgb` or `flow`."""
    network: str
    """`resnet50` or `bninception`."""
    classes: tuple[str, ...]
    seen: Mapping[str, str]
    """SHA-256 of each video file by id: of those it was trained on, that chose its epoch, or that its first weights
    had seen."""
    mAP: Number | None = None
    """mAP on the videos that chose its epoch."""
    fold: int | None = None
    """The fold it has not seen, counted from 1; None of the network of all training videos."""
    origin: Origin | None = None
    """What its training began with; None where that was random weights, or of a file of before this was told."""

    def has_seen(self, video_id: str, sha256: str | None) -> bool:
        """Whether it knows a video by id or, where the SHA-256 of its file is known, by content."""
        return video_id in self.seen or sha256 in self.seen.values()

    def to_json(self) -> str:
        """The text that the file holds."""
        entries = {"format": FORMAT, **asdict(self), "seen": dict(self.seen)}
        return json.dumps({name: value for name, value in entries.items() if name != "origin" or value})


def read_card(path: str | Path) -> ModelCard | None:
    """The card in a weights file; None where it has none, as published ones.

    Raises MissingPathError or WeightsError, as `read_content`, and WeightsError where it cannot be understood.
    """
    note = _note(Path(path))
    if note is None:
        return None
    try:
        entries = json.loads(note)
        if entries.pop("format") != FORMAT:
            raise ValueError
        card = built(ModelCard, entries)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"{path} does not state in a form known here what it was trained on.",
            "use the lstr that made it, or train again with `lstr finetune`.",
        ) from error
    if not is_slug(card.name):
        raise WeightsError(f"{path}: the name in its card is {card.name!r}, which is no file name.", FOREIGN)
    return card


def origin_of(path: str | Path) -> Origin | None:
    """What the weights in a file began with: what its card says, else the file itself; None for weights trained here
    from random ones. Raises as `read_card`."""
    if card := read_card(path):
        return card.origin
    entry = published_by_hash(sha256 := sha256_of(path))
    return entry.origin(sha256) if entry else Origin(Path(path).name, sha256)


def _note(path: Path) -> Any:
    """The text beside the tensors; None where there is none."""
    if is_member(path):
        return Archive(path.parent).note(path.name)
    content = read_content(path, mapped=True)
    return content.get(ENTRY) if isinstance(content, Mapping) else None


def blind_fold(cards: Sequence[ModelCard], video_id: str, sha256: str | None) -> int | None:
    """Which of a stream's networks has not seen a video: a fold's number, or None for the first, that of all videos.

    Where each has seen something of it, the one that has not seen its content.
    """
    seen = [(sha256 in card.seen.values(), video_id in card.seen) for card in cards]
    return seen.index(min(seen)) or None


def is_weights_folder(path: str | Path) -> bool:
    """Whether a folder holds networks of `lstr finetune`, finished."""
    return (Path(path) / DESCRIPTION).is_file()


def published_as(name: str, folder: str | Path = ".") -> list[PublishedFile]:
    """The published files that a name means, in any folder; none where a file or a weights folder in it is called so.

    Any other folder of that name, such as one of pictures, is not meant.
    """
    path = Path(folder, name)
    if is_weights_folder(path) or (path.exists() and not path.is_dir()):
        return []
    return [entry for entry in read_manifest() if entry.is_called(name)]


def network_file(source: str | Path, stream: str, fold: int | None = None) -> Path:
    """A stream's weights file of a weights folder, or its member of a model file, which has no folds; any other path
    is the file itself, and has none either."""
    source = Path(source)
    if is_archive(source):
        return member_path(source, stream)
    if not source.is_dir():
        return source
    return source / file_name(stream, fold)


def network_files(source: str | Path, stream: str) -> dict[str, Path]:
    """A stream's weights file, and those of the folds where it is in a weights folder, by their names in such a one."""
    files, fold = {file_name(stream): network_file(source, stream)}, 1
    while Path(source).is_dir() and (path := network_file(source, stream, fold)).is_file():
        files[file_name(stream, fold)] = path
        fold += 1
    return files


def file_name(stream: str, fold: int | None = None) -> str:
    """The file of a network in a weights folder."""
    return f"fold_{fold}/{stream}.pth" if fold else f"{stream}.pth"


@dataclass(frozen=True)
class WeightSources:
    """Where the networks' weights come from: a file, a weights folder, or None for seeded random weights."""

    rgb: str | None = None
    flow: str | None = None
    calibration: "Mapping[str, Mapping[str, Tensor]]" = field(default_factory=dict)
    """Stored batch-norm statistics by stream, for random weights."""
    calibrated_on: tuple[str, ...] = ()
    grey: str | None = None
    difference: str | None = None
    change: str | None = None
    graphs: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Reads the graph of a stream's network, where those are of an exported model."""

    @classmethod
    def of(cls, files: "Mapping[str, str | None]") -> "WeightSources":
        """The sources of files by stream."""
        named: dict[str, Any] = dict(files)
        return cls(**named)

    @property
    def files(self) -> dict[str, str | None]:
        """Where each stream's weights come from."""
        return {stream: getattr(self, stream) for stream in STREAMS}
