"""The model that a detection uses, and warnings for readers of its scores."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.errors import CheckpointError, ConfigError, DeviceError
from lstr.files.atomic import replacing
from lstr.files.home import DEFAULTS, default_model, home
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.checkpoint_recipe import recipe_of
from lstr.pipelines.model_files.description import is_demo
from lstr.pipelines.model_files.model_file import assumptions_of, is_model, load, open_checkpoint, open_model

NEARLY_ALL = 0.85  # visible share of width or height; 3:2 video on a network for 4:3 has 0.89, which needs no warning


def find_checkpoint(path: str | Path | None) -> Path:
    """`path`, else $LSTR_CHECKPOINT, else the default model. Raises CheckpointError when there is none."""
    if named := path or os.environ.get("LSTR_CHECKPOINT"):
        return Path(named)
    default = default_model()
    if default is None:
        raise CheckpointError(
            "There is no model to detect with: none was named, and none is the default one.",
            "name a model file with -m FILE, or as `model` in the file of `lstr watch`;\n"
            "  to make one of your own labelled videos: lstr learn VIDEOS LABELS -o my.lstr",
        )
    return default


def make_default(path: str | Path) -> Path:
    """Copy a model file or checkpoint to where `lstr detect` looks when no other is named; returns that path.

    Raises CheckpointError for a demo model, whose detections on other videos mean nothing, and OutputError.
    """
    packed = is_model(path)
    if packed and is_demo(open_model(path).about):
        raise CheckpointError(
            f"{path} is a demo model, which is of no use for other videos.",
            "make a model of your own videos the default: lstr learn VIDEOS LABELS -o my.lstr",
        )
    kept, removed = DEFAULTS if packed else reversed(DEFAULTS)
    target = home() / kept
    with replacing(target) as temporary:
        shutil.copyfile(path, temporary)
    (home() / removed).unlink(missing_ok=True)
    return target


def load_checkpoint(
    path: str | Path | None, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """The checkpoint to use, its model on `device` (a GPU when there is one), or an exported model.

    Raises CheckpointError when there is none, or it cannot be read.
    """
    found = find_checkpoint(path)
    if exported := _exported(found, overrides):
        return exported
    return open_checkpoint(found, overrides, device)


def read_checkpoint(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """The checkpoint of a path, its model on the CPU, or an exported model. Raises as `load_checkpoint`."""
    return _exported(path, overrides) or load(path, overrides)


def exported_path(checkpoint: Checkpoint | str | Path | None) -> Path | None:
    """The path of a checkpoint to use, where it is an exported model. Raises as `load_checkpoint`."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.path if checkpoint.exported else None
    found = find_checkpoint(checkpoint)
    return found if is_model(found) and open_model(found).exported is not None else None


def processor_of(path: Path, wanted: str | None) -> str:
    """The device of an exported model, where `wanted` may be another. Raises DeviceError for that."""
    if wanted not in (None, "cpu"):
        raise DeviceError(
            f"{path} is exported, and runs on the processor, not on {wanted}.",
            "leave the device out, or use the model file that it was exported from.",
        )
    return "cpu"


def _exported(path: str | Path, overrides: Mapping[str, Any] | None) -> Checkpoint | None:
    """An exported model; None where a path is no such file. Raises CheckpointError, ConfigError for overrides."""
    if not is_model(path) or (model := open_model(path)).exported is None:
        return None
    if overrides:
        raise ConfigError(f"{path} is exported: its settings are in its graphs.", "leave the settings out.")
    from lstr.pipelines.model_files.exported_file import load_exported

    return load_exported(model)


def warnings_of(loaded: Checkpoint) -> list[str]:
    """Return what readers of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.is_random:
        warnings.append(f"the {recipe.random_streams} networks carry random weights: the features are untrained.")
    return warnings


def warnings_of_source(loaded: Checkpoint, source_id: str, video: Path | None = None) -> list[str]:
    """Return what readers of one source's scores must know: the model file may name it as a training video.

    A video file is recognised by its SHA-256, another source by its id.
    """
    seen: Mapping[str, Any] = loaded.about.get("seen") or {}
    hashes, known = {sha256 for sha256 in seen.values() if sha256}, source_id in seen
    if video and hashes:
        from lstr.extractors.networks.published_files import sha256_of

        with suppress(OSError):  # opening the file reports it
            known = sha256_of(video) in hashes or seen.get(source_id, "") is None
    if known:
        return [f"{loaded.path} was trained on {source_id}: on new videos it is likely to do worse."]
    if is_demo(loaded.about) and source_id not in (loaded.about.get("videos") or ()):
        return [f"{loaded.path} is a demo model: it has only seen drawings, so what it says of other videos is chance."]
    return []


def warnings_of_shape(loaded: Checkpoint, width: int, height: int) -> list[str]:
    """Return a warning if networks see less of frames of this size than of their training videos.

    Published networks see the central square of every frame, which needs no warning.
    """
    recipe, shown = recipe_of(loaded), width / height
    sizes = [part.size for part in recipe.parts.values() if part.size] if recipe else []
    parts = [(across / down / shown, "width") for down, across in sizes]
    parts += [(1 / part, "height") for part, _ in parts]
    share, side = min(parts, default=(1.0, ""))
    if share >= NEARLY_ALL:
        return []
    what = f"of pictures of {width}×{height} pixels only the middle {100 * share:.0f} % of the {side} is seen"
    return [f"{what}: {loaded.path} learnt from pictures of another shape."]
