"""A checkpoint in memory, and checks of its entries, for files from anywhere. Needs no torch."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec

from lstr.chunk import CLOCK, Clock
from lstr.config import WindowConfig
from lstr.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from lstr.exported import ExportedStep
    from lstr.models.kind import Model

FORMAT = "lstr-checkpoint/1"
TENSORS = "model_state_dict"
CALIBRATION = "calibration"
Score = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """The stored thresholds of one class, each optional; see `lstr.timeline.Thresholds`."""

    on: Score = 0.0
    off: Score = 0.0
    min_length: Score = 0.0
    merge_gap: Score = 0.0
    highest: bool = False
    backdate: Score = 0.0


# The entries that a checkpoint stores as JSON text.
ENTRIES = {"classes": list[str], "recipe": dict | None, "metrics": dict, "extra": dict, "versions": dict}


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to score, and what is known of it."""

    model: "Model"
    """In eval mode, on the CPU; None of an exported file, which has `exported` instead."""
    config: WindowConfig
    classes: tuple[str, ...]
    recipe: dict[str, Any] | None
    """The feature recipe it was trained on; None if not recorded."""
    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, dict[str, "Tensor"]] = field(default_factory=dict)
    """Batch-norm statistics of random feature networks by stream: part of the recipe that JSON cannot hold."""
    versions: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT
    assumed: dict[str, Any] = field(default_factory=dict)
    """Configuration that neither the file nor the caller states."""
    exported: "ExportedStep | None" = None
    """The step of an exported file, which runs without torch."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The origin that the model file states; empty for a checkpoint."""

    @property
    def store(self) -> Mapping[str, Any]:
        """The entry on the store of published features that it was trained on; empty for features of `lstr extract`."""
        data = self.extra.get("data")
        store = data.get("store") if isinstance(data, dict) else None
        return store if isinstance(store, dict) else {}

    @property
    def clock(self) -> Clock:
        """The times of the chunks of its features. Raises CheckpointError if the file states an invalid clock."""
        try:
            return Clock.from_dict(self.store) if self.store else CLOCK
        except ValueError as error:
            raise CheckpointError(
                f"{self.path} states an invalid rate of features ({error}).", "fetch or copy the file again."
            ) from error


def read_entries(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that a checkpoint stores as JSON text. Raises CheckpointError that names the invalid one."""
    found: dict[str, Any] = {}
    name = ""
    try:
        for name, shape in ENTRIES.items():
            found[name] = msgspec.convert(json.loads(content[name]), shape)
        name = "classes"
        "".join(found[name]).encode()  # names are written to files, which cannot hold a lone surrogate
        name = "thresholds"
        msgspec.convert(found["extra"].get(name) or {}, dict[str, Rule])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: {name} is missing or damaged ({error}).", "save the checkpoint again with lstr train."
        ) from error
    if fault := fault_of_rules(found["classes"], found["extra"].get("thresholds")):
        raise CheckpointError(f"{path} cannot be used: {fault}.", "save the checkpoint again with lstr train.")
    return found


def fault_of_rules(classes: Sequence[str], stored: Mapping[str, Mapping[str, float]] | None) -> str:
    """Return the error in the classes and thresholds of a model, as a phrase; empty without an error."""
    if not classes:
        return "it has no classes"
    for label, rules in (stored or {}).items():
        on, off = rules.get("on"), rules.get("off")
        if max(on or 0, off or 0) > 1:
            return f"a threshold of {label!r} is above 1"
        if on is not None and off is not None and off > on:
            return f"the start threshold of {label!r} is {on:g}, below its end threshold {off:g}"
    return ""


def has_type(value: Any, shape: Any) -> bool:
    """Return whether a value and its content have a type such as dict[str, int]."""
    try:
        msgspec.convert(value, shape)
    # A tensor instead of a mapping has no keys.
    except (ValueError, AttributeError):
        return False
    return True


def check_deflated(path: object, content: IO[bytes] | None = None) -> None:
    """Raise CheckpointError if the members of a zip, `content` or else the file at `path`, are larger than the zip."""
    try:
        with zipfile.ZipFile(content or str(path)) as container:
            claimed = sum(info.file_size for info in container.infolist())
            size = content.seek(0, 2) if content else Path(str(path)).stat().st_size
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path} is damaged ({error}).", "fetch or copy the file again.") from error
    if claimed > size:
        raise CheckpointError(
            f"{path} is compressed ({size} bytes, {claimed} uncompressed).",
            "save it again with torch.save, which does not compress.",
        )
