"""How fast this machine reads videos and trains, measured for a few seconds."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import perf_counter, process_time

import numpy as np
import torch

from lstr.config import WindowConfig
from lstr.errors import VideoError
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.presets import Preset
from lstr.extractors.stages import closed_after, torch_threads
from lstr.extractors.streams import CHANNELS_OF
from lstr.extractors.video.inputs import local_copy
from lstr.extractors.video.reader import open_chunks
from lstr.files.remote import Place
from lstr.labels.label_set import BACKGROUND
from lstr.pipelines.failures import skip_failure
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.loop import kept_memory
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.network_config import FinetuneConfig
from lstr.pipelines.training.recogniser import make_optimiser, recogniser
from lstr.pipelines.training.window_samples import count_steps, draw_windows

FEATURES_SHARE = 0.2  # of the time of a training step, that an image takes as a feature; .16 measured
TIMED_CHUNKS = 12  # of the first video
# Seconds after which a step is not repeated; the first one warms up, and may be five times as slow.
LONGEST_STEPS_S = (10.0, 2.0, 2.0)


def measure_chunks(sources: Sequence[Place], preset: Preset) -> float:
    """Return the seconds of a chunk, by the first chunks of the first readable video. Raises VideoError."""
    for source in sources:
        with (
            skip_failure(source),
            local_copy(source) as (path, _),
            flow_workers(preset.algorithm) as workers,
            closed_after(open_chunks(path, preset.long_side)[2]) as reading,
        ):
            start = perf_counter()
            chunks = list(islice(reading, TIMED_CHUNKS))
            for pending in [workers.submit(chunk.frames) for chunk in chunks] if workers else []:
                pending.result()
            return (perf_counter() - start) / max(1, len(chunks))
    raise VideoError("None of the labelled videos can be read.", "`lstr info VIDEO` says what is wrong with one.")


def measure_training(
    preset: Preset, configs: Mapping[str, FinetuneConfig], n_classes: int, device: str, threads: Sequence[int]
) -> tuple[dict[str, float], int]:
    """Return the seconds of an image in a training step, by stream, and the fastest of some numbers of threads.

    If other programs keep the cores busy, threads wait for each other, and one thread is faster than several.
    """
    found = []
    for n in sorted({*threads}):
        with torch_threads(n), torch.random.fork_rng(devices=[]), kept_memory(torch.device(device).type):
            seconds = {s: _measure_step(s, preset, config, n_classes, device) for s, config in configs.items()}
        found.append((sum(seconds.values()), n, seconds))
    _, n, seconds = min(found, key=lambda measured: measured[0])
    return seconds, n


def _measure_step(stream: str, preset: Preset, config: FinetuneConfig, n_classes: int, device: str) -> float:
    """Return the seconds of an image in a training step of a network."""
    model = recogniser(stream, preset.parts[stream], n_classes, config)
    model.to(device=device).to(memory_format=torch.channels_last).train()
    optimiser = make_optimiser(model, config)
    shape = (config.batch_size, config.segments, CHANNELS_OF[stream], *config.size)
    images, labels = torch.zeros(shape, dtype=torch.uint8), torch.zeros(config.batch_size, dtype=torch.long)

    def step() -> None:
        is_rough = config.precision == "bf16"
        with (
            torch.autocast(torch.device(device).type, torch.bfloat16, enabled=is_rough),
            torch.set_grad_enabled(config.epochs > 0),
        ):
            loss = model(*model.prepare(images, labels))
        if config.epochs:
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    seconds = fastest(step, device) / (config.batch_size * config.segments)
    return seconds if config.epochs else seconds / FEATURES_SHARE  # without epochs it computes features only


def measure_model(
    model: WindowConfig, config: TrainConfig, lengths: Sequence[int], classes: Sequence[str], device: str
) -> float:
    """Return the seconds to train a model on videos of these lengths in chunks, with its teacher if it has one.

    Raises ConfigError if no window fits into a video.
    """
    background = np.array([name == BACKGROUND for name in classes], np.uint8)
    videos = []
    for n in filter(None, lengths):  # zeros that take no memory
        rgb, flow = (np.broadcast_to(np.float32(0), (n, width)) for width in (model.rgb_dim, model.flow_dim))
        videos.append(LabelledVideo("", TwoStreamArray(rgb, flow), np.broadcast_to(background, (n, len(classes)))))
    steps = count_steps(videos, model, config)
    with torch.random.fork_rng(devices=[]):
        learner = Learner(videos, classes, model, config, device=device)
        drawn = draw_windows(videos, model, config, 0)[: config.batch_size]
        seconds = fastest(lambda: learner.step(learner.make_batch(drawn), 0, lr=0.0), device)  # waits for its loss
    return (2 if config.teacher else 1) * steps * seconds


def fastest(step: Callable[[], object], device: str) -> float:
    """Return the seconds of the fastest of a few calls; the first one warms up.

    One thread on a processor is measured by processor time, so that other programs do not change the plan.
    """
    clock = process_time if device == "cpu" and torch.get_num_threads() == 1 else perf_counter
    seconds = math.inf
    for longest in LONGEST_STEPS_S:
        start = clock()
        step()
        seconds = min(seconds, clock() - start)
        if seconds > longest:
            break
    return seconds
