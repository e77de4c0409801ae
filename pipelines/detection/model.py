"""The model that a detection uses, its networks for raw video, and warnings for readers of the scores."""

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import CheckpointError, ConfigError, DeviceError
from lstr.extractors.devices import CAPTURING, choose_device
from lstr.extractors.flow.workers import FlowWorkers, flow_workers
from lstr.extractors.run import TwoStream, run_on
from lstr.extractors.stages import torch_threads
from lstr.files.atomic import replacing
from lstr.files.home import DEFAULTS, default_model, home
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.model_files.model_file import (
    assumptions_of,
    is_model,
    load_exported,
    open_checkpoint,
    open_model,
)
from lstr.pipelines.model_files.networks import networks_of, recipe_of

NEARLY_ALL = 0.85  # visible share of width or height; 3:2 video on a network for 4:3 has 0.89, which needs no warning
DEFAULT = NetworkOptions()
# The networks for raw video, the workers for optical flow if it needs any, and warnings.
OpenNetworks = tuple[TwoStream, FlowWorkers | None, list[str]]


def find_checkpoint(path: str | Path | None) -> Path:
    """Return `path`, else $LSTR_CHECKPOINT, else the default model. Raises CheckpointError without one."""
    if named := path or os.environ.get("LSTR_CHECKPOINT"):
        return Path(named)
    default = default_model()
    if default is None:
        raise CheckpointError(
            "No model is named, and no default model is set.",
            "name a model file with -m FILE, or as `model` in the file of `lstr watch`;\n"
            "  to make one of your own labelled videos: lstr learn VIDEOS LABELS -o my.lstr",
        )
    return default


def make_default(path: str | Path) -> Path:
    """Make a copy of a model file or checkpoint the default model of `lstr detect`, and return its path.

    Raises OutputError, and CheckpointError for a demo model, because it is useless on other videos.
    """
    packed = is_model(path)
    if packed and open_model(path).about.get("demo") is True:
        raise CheckpointError(
            f"{path} is a demo model: its detections on other videos are meaningless.",
            "make a model of your own videos the default: lstr learn VIDEOS LABELS -o my.lstr",
        )
    kept, removed = DEFAULTS if packed else reversed(DEFAULTS)
    target = home() / kept
    with replacing(target) as temporary:
        shutil.copyfile(path, temporary)
    (home() / removed).unlink(missing_ok=True)
    return target


def load_checkpoint(
    path: str | Path | None, overrides: Mapping[str, Any] | None = None, device: str | None = None
) -> Checkpoint:
    """Load the checkpoint to use, its model on `device` (a GPU if there is one), or an exported model.

    Raises CheckpointError if it is missing or cannot be read, and ConfigError for overrides of an exported model.
    """
    path = find_checkpoint(path)
    if not is_model(path) or (model := open_model(path)).exported is None:
        return open_checkpoint(path, overrides, device)
    if overrides:
        raise ConfigError(f"{path} is exported: its settings are fixed.", "remove the settings.")
    return load_exported(model)


def device_of(checkpoint: Checkpoint | str | Path | None, wanted: str | None) -> str | None:
    """Return the device for a checkpoint to use: the processor for an exported model, else `wanted`.

    Raises DeviceError if another device is wanted of an exported model, and as `load_checkpoint`.
    """
    if isinstance(checkpoint, Checkpoint):
        path, is_exported = checkpoint.path, checkpoint.exported is not None
    else:
        path = find_checkpoint(checkpoint)
        is_exported = is_model(path) and open_model(path).exported is not None
    if not is_exported:
        return wanted
    if wanted not in (None, "cpu"):
        raise DeviceError(
            f"{path} is exported, so it runs on the CPU, not on {wanted}.",
            "omit the device, or use the model file that it was exported from.",
        )
    return "cpu"


class Networks:
    """The networks of a model for raw video, built when a source first needs them; close them."""

    def __init__(self, loaded: Checkpoint, options: NetworkOptions = DEFAULT):
        self.loaded, self.options = loaded, options
        self._stack, self._lock = ExitStack(), threading.Lock()
        self.made: OpenNetworks | None = None
        """None before they are built."""
        self.error: BaseException | None = None
        """Why they cannot be built, which is not the error of a source."""

    def open(self) -> OpenNetworks:
        """Return the networks, built now if needed.

        Raises as `networks_of`, FlowError where this machine lacks the backend, and NetworkRuntimeError for a runtime
        that was named and cannot be used.
        """
        with self._lock, ExitStack() as stack:
            if self.made:
                return self.made
            self.error = None
            loaded, options = self.loaded, self.options
            try:
                device = choose_device(device_of(loaded, options.device))
                made, warnings = networks_of(loaded, options.weights, device, options.algorithm, options.allow_mismatch)
                twostream = run_on(made, options.runtime, options.flow_threads)
                twostream.prepare()
                if device != "cpu":
                    twostream.prepare(1, twostream.batch)  # graphs are captured before any thread uses the GPU
                if not loaded.exported:
                    # the model decides while networks and flow compute the next chunks: it must leave them their cores
                    stack.enter_context(torch_threads(1))
                algorithm = twostream.recipe.algorithm
                workers = flow_workers(algorithm, options.flow_threads, options.flow_backend, device)
                pool = stack.enter_context(workers)
            except BaseException as error:
                self.error = error
                raise
            self._stack = stack.pop_all()
            self.made = twostream, pool, [*warnings, *twostream.warnings, *(pool.warnings if pool else ())]
            return self.made

    def close(self) -> None:
        """Free their memory and threads."""
        self._stack.close()
        self.made = None


def warnings_of(loaded: Checkpoint) -> list[str]:
    """Return what readers of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.random_streams:
        warnings.append(f"the {recipe.random_streams} networks have random weights: the features are untrained.")
    return warnings


def warnings_of_source(loaded: Checkpoint, source_id: str, video: Path | None = None) -> list[str]:
    """Return what readers of one source's scores must know: the model file may name it as a training video.

    A video file is recognised by its SHA-256, another source by its id.
    """
    seen: Mapping[str, Any] = loaded.about.get("seen") or {}
    hashes, known = {sha256 for sha256 in seen.values() if sha256}, source_id in seen
    if video and hashes:
        from lstr.extractors.networks.weights_file import sha256_of

        with suppress(OSError):  # opening the file reports it
            known = sha256_of(video) in hashes or seen.get(source_id, "") is None
    if known:
        return [f"{loaded.path} was trained on {source_id}: expect worse results on new videos."]
    if loaded.about.get("demo") is True and source_id not in (loaded.about.get("videos") or ()):
        return [f"{loaded.path} is a demo model, trained on rendered figures: its results on other videos are random."]
    return []


def seen_parts(size: tuple[int, int], width: int, height: int) -> tuple[float, float]:
    """Return which parts of the width and the height of frames a network of a size (height, width) sees."""
    ratio = size[1] / size[0] / (width / height)
    return min(1.0, ratio), min(1.0, 1 / ratio)


def warnings_of_shape(loaded: Checkpoint, width: int, height: int) -> list[str]:
    """Return a warning if networks see less of frames of this size than of their training videos.

    Published networks see the central square of every frame, which needs no warning.
    """
    recipe = recipe_of(loaded)
    sizes = [part.size for part in recipe.parts.values() if part.size] if recipe else []
    parts = [zip(seen_parts(size, width, height), ("width", "height"), strict=True) for size in sizes]
    share, side = min(chain.from_iterable(parts), default=(1.0, ""))
    if share >= NEARLY_ALL:
        return []
    what = f"of frames of {width}×{height} pixels the networks see only the middle {100 * share:.0f} % of the {side}"
    return [f"{what}: {loaded.path} was trained on frames of another shape."]


class Streams:
    """Places for several sources in one state of a model, by torch, or by ONNX Runtime for an exported model.

    `step` and `reset` are as in `lstr.streaming`, without the model and its state.
    """

    def __init__(self, loaded: Checkpoint, places: int):
        self.as_input: Callable[[NDArray[np.float32]], Any] = np.asarray
        # imported here: an exported model runs without torch
        if loaded.exported:
            from lstr import exported as streaming
        else:
            import torch

            from lstr import streaming  # type: ignore[no-redef]

            self.as_input = torch.from_numpy
        module: Any = streaming
        model: Any = loaded.exported or loaded.model
        state = module.create(model, places)
        if not loaded.exported and module.can_capture(model):
            with CAPTURING:  # takes as long as a dozen steps; no network may be captured at the same time
                module.capture(model, state)
        self.step, self.reset = partial(module.step_streams, model, state), partial(module.reset, state)
