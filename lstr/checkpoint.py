"""Checkpoints: one file of tensors under the published names and JSON text, read without running any code in it."""

from __future__ import annotations

import json
import pickle
import platform
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lstr import __version__
from lstr.checkpoint_claims import bounded, check_deflated, check_memory, check_plain
from lstr.checkpoint_entries import is_made_of, is_tables, read_entries
from lstr.config import WindowConfig
from lstr.errors import CheckpointError, ConfigError
from lstr.files.atomic import temporary_for, write_tensors
from lstr.kinds import KINDS, change, from_json, make_model
from lstr.loaded_checkpoint import CALIBRATION, FORMAT, TENSORS, Checkpoint
from lstr.models.kind import Model
from lstr.published_checkpoint import published_classes, read_published, tables_of, taken_for
from lstr.settings import to_json

PUBLISHED = "published"
TABLE = "pos_encoding.pe"
CLASSIFIER = "classifier.weight"
LIKELY = 4  # times the numbers in a file: a layer of more is looked at before it is made


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

    recipe, metrics and extra are stored as JSON, calibration as tensors. Raises CheckpointError when the classes
    do not fit the model, a value is not JSON, or the file cannot be written.
    """
    path = Path(path)
    if len(classes) != model.n_classes:
        raise CheckpointError(
            f"The model scores {model.n_classes} classes but {len(classes)} names were passed.",
            "Pass one name for each column of the scores.",
        )
    content = {
        "format": FORMAT,
        "config": to_json(model.config),
        "classes": _json("classes", list(classes)),
        "recipe": _json("recipe", None if recipe is None else dict(recipe)),
        "metrics": _json("metrics", dict(metrics)),
        "extra": _json("extra", dict(extra or {})),
        "versions": _json("versions", library_versions()),
        CALIBRATION: {
            stream: {name: tensor.detach().cpu() for name, tensor in tensors.items()}
            for stream, tensors in (calibration or {}).items()
        },
        TENSORS: {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()},
    }
    write_atomically(path, content)


def library_versions() -> dict[str, str]:
    """Versions of what computes scores."""
    return {
        "lstr": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write_atomically(path: str | Path, content: Any) -> None:
    """torch.save, whole or not at all, and on the disk when it returns. Raises CheckpointError."""
    path = Path(path)
    try:
        with temporary_for(path) as temporary:
            write_tensors(temporary, content)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be written ({error}).", "Give an existing folder with free space."
        ) from error


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint of ours, or of the published code ({epoch, model_state_dict, ...}).

    A published one is read with grid "sliding" and positions "slot"; its shapes give what they can, and
    `overrides` (setting to value) the rest: n_heads, long_length, long_stride; kind "testra", whose tensors are named
    as LSTR's, and its decay. Raises CheckpointError when
    the file is missing, damaged, unsafe, or contradicts its configuration, and ConfigError on a bad override.
    """
    return interpret(path, read(path), overrides)


def interpret(path: str | Path, content: Any, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """A checkpoint from what `read` gives of its file; `path` is for messages. Raises as `load`."""
    path, overrides = Path(path), dict(overrides or {})
    tensors = content.get(TENSORS) if isinstance(content, dict) else None
    # asked for in other files alone, because it imports every kind of model
    if tensors is None and is_made_of(bare := tables_of(content), dict[str, Tensor]):
        content = {TENSORS: (tensors := bare)}  # the weights alone, as MiniROAD's code saves them
    if not tensors or not is_made_of(tensors, dict[str, Tensor]):
        raise CheckpointError(
            f"{path} holds no table of tensors named {TENSORS}.",
            "Give a file that lstr train or the published code saved.",
        )
    check_plain(path, tensors)
    found, fitting = content.get("format", PUBLISHED), list[str]()
    if found == FORMAT:
        try:
            trained = from_json(content.get("config"))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}", error.hint) from error
        config = change(trained, overrides)
        if {config.kind, trained.kind} == {"lstr", "testra"}:  # the same tensors, with another meaning
            raise CheckpointError(
                f"{path} is of kind {trained.kind}, not {config.kind}.", "Leave model.kind as it was trained."
            )
        parts = read_entries(path, content)
        classes = tuple(parts.pop("classes"))
        calibration, assumed = content.get(CALIBRATION, {}), {}
        if not is_tables(calibration):
            raise CheckpointError(f"{path}: calibration is not tables of tensors.", "Save it again with lstr train.")
        for stream, table in calibration.items():
            check_plain(path, {f"calibration/{stream}/{name}": tensor for name, tensor in table.items()})
    elif found == PUBLISHED:
        reading = read_published(path, tensors, overrides)
        tensors, config, assumed, fitting = reading.tensors, reading.config, reading.assumed, reading.fitting
        classes = published_classes(tensors)
        calibration = {}
        epoch = content.get("epoch")
        parts = {"recipe": None, "metrics": {}, "extra": {} if epoch is None else {"epoch": epoch}, "versions": {}}
    else:
        raise CheckpointError(
            f"{path} has the format {found!r}, this version reads {FORMAT!r}.", "Update lstr, or save it again."
        )
    _check_shapes(path, tensors, config)
    scored = len(tensors[CLASSIFIER if CLASSIFIER in tensors else f"members.0.{CLASSIFIER}"])
    if len(classes) != scored:
        raise CheckpointError(
            f"{path} names {len(classes)} classes but its classifier has {scored} rows.",
            "Save the checkpoint again with the classes it was trained on.",
        )
    try:
        _check_claims(path, tensors, config, len(classes))
        with bounded(path, tensors):
            model = make_model(config, len(classes))
        _check_sizes(path, tensors, model.state_dict())
    except CheckpointError as error:
        raise taken_for(error, config.kind, fitting) from error
    _fill(model, tensors)
    return Checkpoint(
        model.eval(), config, classes, calibration=calibration, format=found, path=path, assumed=assumed, **parts
    )


def read(path: str | Path) -> Any:
    """What torch.save wrote to a file, tensors on the CPU, nothing in it executed. Raises CheckpointError."""
    path = Path(path)
    again = "Fetch or copy the file again."
    if path.is_dir():
        inside = next((path / name for name in ("checkpoint.pt", "best.pt") if (path / name).is_file()), None)
        hint = (
            f"Give a file, such as {inside}."
            if inside
            else "Give the checkpoint.pt of a folder that `lstr train` wrote."
        )
        raise CheckpointError(f"{path} is a folder, not a checkpoint.", hint)
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise CheckpointError(f"{path} is no file, such as a pipe or a device.", "Give a file on a disk.")
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no checkpoint {path}.", "Train one with: lstr train, or lstr demo") from error
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read ({error}).", "Check the file's permissions."
        ) from error
    if head == b"PK" and not zipfile.is_zipfile(path):
        raise CheckpointError(f"The checkpoint {path} is cut short.", again)
    if head == b"PK":
        check_deflated(path)
    if head not in (b"PK", b"\x80\x02"):
        raise CheckpointError(f"{path} is not a checkpoint.", "Give a .pt or .pth file that torch.save wrote.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds Python objects, and reading those can run any code.",
            "Load it where you trust it, keep only tensors, numbers and text, and save it again with torch.save.",
        ) from error
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"The checkpoint {path} is damaged ({reason}).", again) from error


def _check_shapes(path: Path, tensors: Mapping[str, Tensor], config: WindowConfig) -> None:
    """Refuse a configuration that the tensors contradict, naming both values."""
    published = KINDS[config.kind].published
    if published is None or not config.told_by_tensors:
        return
    for name, value in published.shapes(tensors).items():
        if name == "n_classes":
            continue
        wanted = int(config.n_long > 0) if name == "long_memory" else getattr(config, name)
        if wanted != value:
            raise CheckpointError(
                f"{path}: {name} is {wanted} in the configuration but {value} in the tensors.",
                f"Leave {name} as it was trained, or give another checkpoint.",
            )


def _check_claims(path: Path, tensors: Mapping[str, Tensor], config: WindowConfig, n_classes: int) -> None:
    """Raise CheckpointError where a model of the configuration would be far larger than the tensors are."""
    layers = max(config.l_enc, config.l_dec)
    check_memory(path, config)
    if layers > len(tensors):
        raise CheckpointError(
            f"{path} has {len(tensors)} tensors and its configuration {layers} layers.",
            "Give a checkpoint of this configuration.",
        )
    widest = max(value for value in config.to_dict().values() if isinstance(value, int))
    if config.d_model * widest > LIKELY * sum(tensor.numel() for tensor in tensors.values()):
        with bounded(path, tensors), torch.device("meta"):  # nothing is allocated, but it takes a second to import
            expected = make_model(config, n_classes).state_dict()
        _check_sizes(path, tensors, expected)


def _check_sizes(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError about what does not fit into a model."""
    for what, names in (("lacks", set(expected) - set(tensors)), ("has unknown", set(tensors) - set(expected))):
        if names:
            shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise CheckpointError(f"{path} {what} tensors: {shown}.", "Give a checkpoint of the LSTR architecture.")
    check_plain(path, tensors, expected)
    for name, tensor in tensors.items():
        shape = expected[name].shape
        if tensor.shape != shape and (name != TABLE or tensor.shape[1:] != shape[1:]):
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the model takes {tuple(shape)}.",
                "Give a checkpoint of this configuration.",
            )
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{path}: {name} holds values that are not finite.", "Give an earlier checkpoint.")


def _fill(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors that fit into the model."""
    own = model.state_dict()
    if TABLE in own and own[TABLE].shape != tensors[TABLE].shape:
        # computed, never trained: a longer or shorter one is no reason to refuse the weights
        tensors = {**tensors, TABLE: own[TABLE]}
    model.load_state_dict(tensors)


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, default=lambda scalar: scalar.item())
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"The checkpoint's {name} is not JSON ({error}).", "Keep to numbers, text, lists."
        ) from error
