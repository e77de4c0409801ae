"""Checkpoints: one file of tensors under the published names and JSON text, read without running any code in it.

A file may come from anywhere. The sizes that it states are compared with its bytes before anything is allocated.
"""

import json
import math
import pickle
import platform
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lstr import __version__
from lstr.errors import CheckpointError, ConfigError
from lstr.files.atomic import temporary_for, write_tensors
from lstr.kinds import KINDS, change, from_json, make_model, name_kind, read_published, usable
from lstr.labels.label_set import BACKGROUND, THUMOS_CLASSES
from lstr.loaded_checkpoint import CALIBRATION, FORMAT, TENSORS, Checkpoint, check_deflated, has_type, read_entries
from lstr.models.kind import Model
from lstr.settings import to_json

PUBLISHED = "published"
TABLE = "pos_encoding.pe"
WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# Numbers that a model may have in addition to those of its file: tables that are computed, and temporary tensors.
FREE = 2**24
# Numbers that a stream may remember: more than a hundred times those of the published models.
REMEMBERED = 2**28
COPIES = ("clone", "__deepcopy__")
# Tensors that may be created for one of a model; at most 3 are needed.
TENSOR_FACTOR = 10
FETCH_AGAIN = "fetch or copy the file again."


def save(
    path: str | Path,
    model: Model,
    classes: Sequence[str],
    recipe: Mapping[str, Any] | None,
    metrics: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
    calibration: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> None:
    """Write a checkpoint; the file appears whole or not at all, and replaces an older one.

    recipe, metrics and extra are stored as JSON, calibration as tensors. Raises CheckpointError if the classes do not
    fit the model, a value is not JSON, or the file cannot be written.
    """
    if len(classes) != model.n_classes:
        message = f"The model scores {model.n_classes} classes, but {len(classes)} names were passed."
        raise CheckpointError(message, "pass one name for each column of the scores.")
    entries = {
        "classes": list(classes),
        "recipe": None if recipe is None else dict(recipe),
        "metrics": dict(metrics),
        "extra": dict(extra or {}),
        "versions": library_versions(),
    }
    content: dict[str, Any] = {"format": FORMAT, "config": to_json(model.config)}
    for name, value in entries.items():
        try:
            content[name] = json.dumps(value, default=lambda scalar: scalar.item())
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"The checkpoint's {name} cannot be stored as JSON ({error}).", "use numbers, text and lists only."
            ) from error
    tables = {stream: dict(tensors) for stream, tensors in (calibration or {}).items()}
    for table in (*tables.values(), weights := dict(model.state_dict())):
        table.update((name, tensor.detach().cpu()) for name, tensor in table.items())
    write_atomically(path, content | {CALIBRATION: tables, TENSORS: weights})


def library_versions() -> dict[str, str]:
    """Return the versions of what computes scores."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {"lstr": __version__, **versions}


def write_atomically(path: str | Path, content: Any) -> None:
    """Write with torch.save, whole or not at all, and on the disk when it returns. Raises CheckpointError."""
    try:
        with temporary_for(Path(path)) as temporary:
            write_tensors(temporary, content)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be written ({error}).", "use an existing folder with free space."
        ) from error


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint of ours, or of the published code ({epoch, model_state_dict, ...}).

    A published one is read with grid "sliding" and positions "slot". Its shapes give what they can, and `overrides`
    (setting to value) the rest: n_heads, long_length, long_stride; kind "testra", whose tensors have the names of
    LSTR's, and its decay. Raises CheckpointError if the file is missing, damaged, unsafe, or contradicts its
    configuration, and ConfigError on a bad override.
    """
    return interpret(path, read(path), overrides)


def read(path: str | Path) -> Any:
    """Return what torch.save wrote to a file, tensors on the CPU, without running its code. Raises CheckpointError."""
    path = Path(path)
    if path.is_dir():
        inside = next((path / name for name in ("checkpoint.pt", "best.pt") if (path / name).is_file()), None)
        hint = f"use a file, such as {inside}." if inside else "use the checkpoint.pt that `lstr train` wrote."
        raise CheckpointError(f"{path} is a folder, not a checkpoint.", hint)
    if path.exists() and not path.is_file():  # opening a FIFO would wait for a writer
        raise CheckpointError(f"{path} is not a regular file.", "use a file on a disk.")
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except FileNotFoundError as error:
        raise CheckpointError(f"Checkpoint not found: {path}.", "train one with: lstr train, or lstr demo") from error
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read ({error}).", "check the file's permissions."
        ) from error
    if head == b"PK" and not zipfile.is_zipfile(path):
        raise CheckpointError(f"The checkpoint {path} is truncated.", FETCH_AGAIN)
    if head == b"PK":
        check_deflated(path)
    elif head != b"\x80\x02":
        raise CheckpointError(f"{path} is not a checkpoint.", "use a .pt or .pth file that torch.save wrote.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} contains Python objects, which can run code when they are read.",
            "if you trust it, load it with torch.load, and save only its tensors, numbers and text again.",
        ) from error
    # A damaged file fails in as many ways as it has bytes.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"The checkpoint {path} is damaged ({reason}).", FETCH_AGAIN) from error


def interpret(path: str | Path, content: Any, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Return the checkpoint in what `read` returned; `path` is for messages. Raises as `load`."""
    path, overrides = Path(path), dict(overrides or {})
    tensors = content.get(TENSORS) if isinstance(content, dict) else None
    # tried only on other files, because it imports every kind of model
    if tensors is None and isinstance(content, dict):
        if isinstance(content.get("model"), dict):  # of the code of OadTR and GateHUB
            tensors = content["model"]
        else:
            found_tables = (kind.published.tables(content) for kind in usable().values() if kind.published)
            # else the weights without anything else, as MiniROAD's code saves them
            tensors = next((tables for tables in found_tables if tables is not None), content)
        if has_type(tensors, dict[str, Tensor]):
            content = {TENSORS: tensors}
    if not tensors or not has_type(tensors, dict[str, Tensor]):
        hint = "use a file that lstr train or the published code saved."
        raise CheckpointError(f"{path} has no table of tensors named {TENSORS}.", hint)
    check_plain(path, tensors)
    found, fitting, calibration, assumed = content.get("format", PUBLISHED), list[str](), {}, dict[str, Any]()
    if found == FORMAT:
        try:
            trained = from_json(content.get("config"))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}", error.hint) from error
        config = change(trained, overrides)
        if {config.kind, trained.kind} == {"lstr", "testra"}:  # the same tensors, with another meaning
            raise CheckpointError(
                f"{path} is of kind {trained.kind}, not {config.kind}.", "leave model.kind as it was trained."
            )
        parts = read_entries(path, content)
        classes = tuple(parts.pop("classes"))
        calibration = content.get(CALIBRATION, {})
        if not has_type(calibration, dict[str, dict[str, Tensor]]):
            raise CheckpointError(f"{path}: calibration is not tables of tensors.", "save it again with lstr train.")
        for stream, table in calibration.items():
            check_plain(path, {f"calibration/{stream}/{name}": tensor for name, tensor in table.items()})
    elif found == PUBLISHED:
        tensors, config, assumed, fitting = read_published(path, tensors, overrides)
        classes = THUMOS_CLASSES
        if (n_classes := len(tensors["classifier.weight"])) != len(THUMOS_CLASSES):
            # Column 0 is background in every published data set.
            classes = (BACKGROUND, *(f"class_{index}" for index in range(1, n_classes)))
        epoch = content.get("epoch")
        parts = {"recipe": None, "metrics": {}, "extra": {} if epoch is None else {"epoch": epoch}, "versions": {}}
    else:
        raise CheckpointError(
            f"{path} has the format {found!r}, this version reads {FORMAT!r}.", "update lstr, or save it again."
        )
    reader = KINDS[config.kind].published
    for name, value in reader.shapes(tensors).items() if reader and config.has_sizes_in_tensors else ():
        wanted = getattr(config, name, None)
        if wanted and wanted != value:  # 0 follows another setting
            raise CheckpointError(
                f"{path}: {name} is {wanted} in the configuration but {value} in the tensors.",
                f"leave {name} as it was trained, or use another checkpoint.",
            )
    try:
        chunks = config.n_long + config.work_length + config.context
        # No tensor shows the lengths, so a small file could ask for any memory.
        if (numbers := chunks * max(config.d_model, config.input_dim)) > REMEMBERED:
            raise CheckpointError(
                f"{path}: a stream of its model would remember {chunks} chunks, which take {numbers >> 28} GB.",
                "use a checkpoint with a shorter memory.",
            )
        with Bounded(path, tensors):
            model = make_model(config, len(classes))
        own = model.state_dict()
        check_plain(path, tensors, own)
    except CheckpointError as error:
        raise name_kind(error, config.kind, fitting) from error
    if TABLE in own and own[TABLE].shape != tensors[TABLE].shape:
        # The table is computed, never trained, so another length is no reason to refuse the file.
        tensors = {**tensors, TABLE: own[TABLE]}
    model.load_state_dict(tensors)
    return Checkpoint(
        model.eval(), config, classes, calibration=calibration, format=found, path=path, assumed=assumed, **parts
    )


def check_plain(path: object, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor] | None = None) -> None:
    """Raise CheckpointError for a tensor that is not plain numbers, each with its own memory, on the CPU.

    With the `expected` tensors of a model, also for names, types and shapes that do not fit them, and for values that
    are not finite.
    """
    names = tensors.keys() if expected is None else expected.keys()
    for what, odd in (("lacks", names - tensors.keys()), ("has unknown", tensors.keys() - names)):
        if odd:
            shown = ", ".join(sorted(odd)[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
            raise CheckpointError(f"{path} {what} tensors: {shown}.", "use a checkpoint of the LSTR architecture.")
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
            fault = "a meta, nested, sparse or quantised tensor, not a plain one"
        elif tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            fault = f"a view of shape {tuple(tensor.shape)} with fewer stored numbers"
        else:
            types: tuple[torch.dtype, ...] = (*WEIGHTS, *WHOLE)
            if expected is not None:
                types = WEIGHTS if expected[name].is_floating_point() else (expected[name].dtype,)
            if tensor.dtype in types:
                continue
            fault = f"of the unexpected type {tensor.dtype}"
        hint = "use a file that lstr train or the published code saved."
        raise CheckpointError(f"{path}: {name} is {fault}.", hint)
    if expected is None:
        return
    for name, tensor in tensors.items():
        shape = expected[name].shape
        if tensor.shape != shape and (name != TABLE or tensor.shape[1:] != shape[1:]):
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, but the model takes {tuple(shape)}.",
                "use a checkpoint of this configuration.",
            )
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{path}: {name} contains values that are not finite.", "use an earlier checkpoint.")


class Bounded(TorchFunctionMode):
    """A block in which new tensors stay near the size of a checkpoint's tensors, or raise CheckpointError.

    A tensor that is too large is refused before it is allocated. Of one thread.
    """

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]):
        super().__init__()
        places = [tensor.untyped_storage() for tensor in tensors.values()]
        held = {place.data_ptr(): place.nbytes() for place in places}  # several may share one
        self.path, self.made, self.numbers = path, 0, 0
        self.most_made, self.most_numbers = (TENSOR_FACTOR * (len(tensors) + TENSOR_FACTOR), sum(held.values()) + FREE)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = (*args, *(kwargs or {}).values())
        first = next((value for value in values if isinstance(value, Tensor)), None)
        if first is not None and getattr(function, "__name__", "") not in COPIES:
            return function(*args, **(kwargs or {}))
        self.made += 1
        self.numbers += math.prod(_sizes(values)) if first is None else first.numel()
        if self.made > self.most_made or self.numbers > self.most_numbers:
            raise CheckpointError(
                f"{self.path}: the configuration describes a much larger model than its tensors.",
                "use a checkpoint of this configuration.",
            )
        return function(*args, **(kwargs or {}))


def _sizes(values: Iterable[Any]) -> Iterator[int]:
    """Yield the whole numbers in the arguments of a function, which are sizes if no argument is a tensor."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _sizes(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield max(1, abs(value))
