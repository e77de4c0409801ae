"""How fast this machine is at what learning consists of, measured for a few seconds before the plan is made."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from time import perf_counter, process_time
from typing import Any, TypeVar

import numpy as np
import torch

from lstr.config import WindowConfig
from lstr.errors import VideoError
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.prefetch import closed_after, torch_threads
from lstr.extractors.presets import Preset
from lstr.extractors.streams import CHANNELS_OF, PICTURES
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.inputs import at_hand
from lstr.files.remote import Place
from lstr.labels.label_set import BACKGROUND
from lstr.pipelines.extraction.chunk_cache import planes_of
from lstr.pipelines.extraction.plan import cost_of, row_bytes, widths_of
from lstr.pipelines.failures import left_out
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.parts import N_FOLDS, TESTING, TRAINING, VALIDATION, LabelParts, folds_of
from lstr.pipelines.learning.plan import Costs, LearnPlan, fit_epochs, make_steps, passes_of
from lstr.pipelines.learning.ways import Candidate, Run, candidates_of, measured_runs, share_of, ways_of
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.frame_cache import check_room, chunks_of
from lstr.pipelines.training.learner import Learner
from lstr.pipelines.training.loop import kept_memory
from lstr.pipelines.training.model_run import check_teacher
from lstr.pipelines.training.network_config import FinetuneConfig
from lstr.pipelines.training.networks import best_at_once, threads_of
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.recogniser import NetworksToTrain, make_optimiser, recogniser
from lstr.pipelines.training.window_samples import PieceMaker, count_steps, draw_windows

Measured = TypeVar("Measured")
CHUNKS = 12  # of the first video that are decoded, 3 s of it
STEPS = 2  # of training, after one that warms up
LONG_STEP = 2.0  # seconds: one that takes longer is not repeated
LONG_START = 10.0  # seconds, of the first step: one that is shorter may be five times as long as those that follow
RUN_STARTING = 1.0  # seconds that a model takes to begin and to be written
ENOUGH = 2 / 3
"""Share of their training that networks need where fewer can be trained instead; a guess. With a fifth of it, in ten
minutes of a busy machine, networks of folds had mAP .31 on UT-Interaction: the videos that are spared by holding some
out were not worth that. In three minutes two networks with an eighth of it had .65, and one with a third of it .76."""
TRYING = 0.2  # of the time, which the models that are compared may take
SOON = 60.0  # seconds that they may take in any case, where no time is given
FORWARD = 0.2  # of a training step's time an image takes for its features; .16 measured of EfficientNet-Lite0


@dataclass(frozen=True)
class Header:
    """What a video's header tells; no chunks of one that cannot be read."""

    chunks: int
    size: tuple[int, int] | None = None
    """Width and height in pixels at which flow is computed, where they are known"""


def measure_chunks(sources: Sequence[Place], recipe: Preset) -> float:
    """Seconds that a chunk takes, by the first ones of the first video that can be read. Raises VideoError."""
    for source in sources:
        with left_out(source):
            return _chunk_seconds(source, recipe)
    raise VideoError("None of the labelled videos can be read.", "`lstr info VIDEO` says what is wrong with one.")


def _chunk_seconds(source: Place, recipe: Preset) -> float:
    with at_hand(source) as (path, _), flow_workers(recipe.algorithm) as workers:
        _, _, chunks = open_chunks(path, recipe.long_side)
        with closed_after(chunks) as reading:
            start, pending, n_chunks = perf_counter(), [], 0
            for chunk in islice(reading, CHUNKS):
                n_chunks += 1
                if workers:
                    pending.append(workers.submit(chunk.frames))
            for flow in pending:
                flow.result()
    return (perf_counter() - start) / max(1, n_chunks)


def measure_training(
    preset: Preset, configs: Mapping[str, FinetuneConfig], n_classes: int, device: str, among: Sequence[int]
) -> tuple[dict[str, float], int]:
    """Seconds that an image takes in a training step of each stream's network, and with how many threads of torch.

    among: numbers of threads to try. Where other programs keep the cores busy, threads wait for each other, and one is
    faster than several.
    """
    found = []
    for threads in sorted(set(among)):
        with torch_threads(threads):
            seconds = {name: _step_seconds(name, preset, config, n_classes, device) for name, config in configs.items()}
        found.append((sum(seconds.values()), threads, seconds))
    _, threads, seconds = min(found, key=lambda measured: measured[0])
    return seconds, threads


def fastest(step: Callable[[], object], device: str) -> float:
    """Seconds that a step takes, the first of which warms up.

    On one thread of a processor by the time that this process has it: a plan is not another one for what else runs.
    """
    clock = process_time if device == "cpu" and torch.get_num_threads() == 1 else perf_counter
    seconds = math.inf
    for longest in (LONG_START, *[LONG_STEP] * STEPS):
        start = clock()
        step()
        seconds = min(seconds, clock() - start)
        if seconds > longest:
            break
    return seconds


def _step_seconds(stream: str, preset: Preset, config: FinetuneConfig, n_classes: int, device: str) -> float:
    with torch.random.fork_rng(devices=[]):
        model = recogniser(stream, preset.parts[stream], n_classes, config)
        model.to(device=device).to(memory_format=torch.channels_last).train()
        optimiser = make_optimiser(model, config)
        shape = (config.batch_size, config.segments, CHANNELS_OF[stream], *config.size)
        images = torch.zeros(shape, dtype=torch.uint8)
        labels = torch.zeros(config.batch_size, dtype=torch.long)

        def step() -> None:
            with (
                torch.autocast(torch.device(device).type, torch.bfloat16, enabled=config.precision == "bf16"),
                torch.set_grad_enabled(config.epochs > 0),
            ):
                loss = model(*model.prepare(images, labels))
            if config.epochs:
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
            if device.startswith("cuda"):
                torch.cuda.synchronize()

        with kept_memory(model.mean.device.type):  # as a training does
            seconds = fastest(step, device)
    if not config.epochs:  # it stays as it begins, and makes features alone
        seconds /= FORWARD
    return seconds / (config.batch_size * config.segments)


def measure_model(
    model: WindowConfig, config: TrainConfig, lengths: Sequence[int], classes: Sequence[str], device: str
) -> float:
    """Seconds that the steps of training a model take, on videos of so many chunks, with its teacher if it has one.

    Raises ConfigError where no window fits into a video.
    """
    videos = [_blank_video(n_chunks, model, classes) for n_chunks in lengths if n_chunks]
    steps = count_steps(videos, model, config)
    with torch.random.fork_rng(devices=[]):
        learner = Learner(model, config, classes, (torch.zeros(1), torch.ones(1)), device, ALONE)
        make = PieceMaker(videos, model, config, learner.outputs, ALONE, learner.device)
        drawn = draw_windows(videos, model, config, 0)[: config.batch_size]
        seconds = fastest(lambda: learner.step(make(drawn), 0, lr=0.0), device)  # waits for its loss
    return (2 if config.teacher else 1) * steps * seconds


def _blank_video(n_chunks: int, model: WindowConfig, classes: Sequence[str]) -> LabelledVideo:
    """One of zeros without memory of its own; all of it is background."""
    rgb, flow = (np.broadcast_to(np.float32(0), (n_chunks, width)) for width in (model.rgb_dim, model.flow_dim))
    targets = np.array([name == BACKGROUND for name in classes], np.uint8)
    return LabelledVideo("", TwoStreamArray(rgb, flow), np.broadcast_to(targets, (n_chunks, len(classes))))


def measured_plan(
    options: LearnOptions,
    parts: LabelParts,
    networks: NetworksToTrain,
    looked: Mapping[str, Header],
    videos: Mapping[str, Place],
    device: str,
    known: dict[str, Any],
    is_least: bool,
) -> LearnPlan:
    """The plan of a learning by the speed of this machine.

    Raises ConfigError for a model or a time that cannot be, OutputError where the cache has no room for the chunks.

    known: what was measured for other plans, and what is measured here. is_least: whether nothing that takes less time
    can be learnt instead; else a time that leaves networks half trained is too short.
    """
    preset, configs, classes = networks.preset, networks.configs, parts.labels.classes
    chunks, n_videos, cached = Counter[str](), Counter[str](), 0
    planes, square = planes_of(chunks_of(preset)), (preset.long_side, preset.long_side)
    for video_id, video in parts.labels.videos.items():
        found = looked[video_id]
        n_videos[video.subset] += 1
        chunks[video.subset] += found.chunks
        cached += found.chunks * math.prod(found.size or square) * planes if video.subset != TESTING else 0
    files = sum(cost_of(part.network).bytes for part in preset.parts.values())
    disk = cached + chunks.total() * row_bytes(preset) + (1 + parts.measured) * files
    lengths = [looked[i].chunks for i in parts.of(TRAINING)]
    widths, settings = widths_of(preset), options.of_model
    trained = [stream for stream, config in configs.items() if config.epochs]
    candidates = candidates_of(settings, sum(lengths), preset.streams, trained, parts.measured == parts.folds)
    if options.seconds:  # other kinds took three times what was measured, and a plan could not keep to a time
        candidates = tuple(one for one in candidates if one.preset == candidates[0].preset)
    candidates = candidates if parts.folds else candidates[:1]
    models = {
        one.name: resolve(one.preset, settings, _dims(widths, one.streams or preset.streams)) for one in candidates
    }
    for model, training in models.values():
        check_teacher(model, training, max(lengths))
    shortest = sorted((i for i in looked if looked[i].chunks), key=lambda video_id: (looked[video_id].chunks, video_id))
    wanted = {stream: config.epochs for stream, config in configs.items()}
    draws = max(config.draws_of(chunks[TRAINING]) for config in configs.values())
    n_networks = 1 + parts.measured
    together = min(options.at_once or best_at_once(n_networks, max(wanted.values()) * draws, device), n_networks)
    among = [threads_of(together)] if together > 1 else [1, torch.get_num_threads()]
    image, threads = _once(
        known, (preset, configs, among), lambda: measure_training(preset, configs, len(classes), device, among)
    )
    rounds = -(-n_networks // together)
    image = {stream: seconds * rounds / n_networks for stream, seconds in image.items()}
    sample = {stream: seconds * configs[stream].segments for stream, seconds in image.items()}
    with torch_threads(threads):
        seconds = {
            name: _once(known, (made, threads), partial(measure_model, *made, lengths, classes, device))
            for name, made in models.items()
        }
    rows = {stream: FORWARD * seconds * preset.parts[stream].crops for stream, seconds in image.items()}
    row = sum(rows[stream] for stream in trained)
    training_seconds = sum(wanted[stream] * draws * cost for stream, cost in sample.items())
    candidates, twice = affordable(candidates, seconds, parts, options.seconds, training_seconds)
    crossing = crossing_seconds(candidates, seconds, parts, twice)
    chunk = _once(known, preset, lambda: measure_chunks([videos[i] for i in shortest], preset))
    fixed = sum(rows.values()) - row
    costs = Costs(chunk, row, sample, seconds[candidates[0].name], crossing, fixed)
    n_models = 1 if chunks[VALIDATION] else 1 + N_FOLDS
    passes = passes_of(parts.folds, parts.measured, any(one.seen for one in candidates))
    without_images = make_steps(chunks, costs, wanted, 0, n_models, parts.measured, passes)
    others = sum(step.seconds for step in without_images)
    enough = 0.0 if is_least else ENOUGH
    epochs, draws = fit_epochs(options.seconds, others, costs, wanted, draws, parts.measured, enough)
    steps = make_steps(chunks, costs, epochs, draws, n_models, parts.measured, passes)
    # after the time, which may lead to features that take less
    check_room(n_videos.total() - n_videos[TESTING], cached, options.cache_size)
    n_classes, tried = len(classes) - 1, tuple(one.name for one in candidates if parts.folds)
    counts = dict(n_videos), dict(chunks), n_classes
    return LearnPlan(
        *counts,
        parts.sentence,
        steps,
        epochs,
        draws,
        int(disk),
        threads,
        options.seconds,
        parts.folds,
        parts.measured,
        tried,
        at_once=together,
        twice=twice,
        kinds=tuple(dict.fromkeys(models[one.name][0].kind for one in candidates)),
        of_one=not folds_of(parts.of(TRAINING)),
    )


def _once(known: dict[str, Any], what: object, measure: Callable[[], Measured]) -> Measured:
    """What `measure` finds, or has found before of the same."""
    if repr(what) not in known:
        known[repr(what)] = measure()
    found: Measured = known[repr(what)]
    return found


def _dims(widths: Mapping[str, int], streams: Sequence[str]) -> tuple[int, int]:
    """Widths of what a model takes as rgb and as flow, of those of some streams."""
    return sum(widths[s] for s in streams if s in PICTURES), sum(widths[s] for s in streams if s not in PICTURES)


def affordable(
    candidates: tuple[Candidate, ...],
    seconds: Mapping[str, float],
    parts: LabelParts,
    budget: float | None,
    networks: float,
) -> tuple[tuple[Candidate, ...], bool]:
    """The candidates that TRYING of the time allows, at least one, and whether the best is trained twice.

    Other kinds of model come last: two seeds of the best way gave more than TRN, which takes longer (few-videos.json).
    seconds: by candidate, of a model of all videos. budget: of everything; networks: what one of each stream takes.
    """
    allowed = TRYING * budget if budget else max(SOON, TRYING * (1 + parts.measured) * networks)
    own = tuple(one for one in candidates if one.preset == candidates[0].preset)
    fewer = product([own[:n] for n in range(len(own), 0, -1)], (True, False))
    for some, twice in [(candidates, True), *fewer]:
        if crossing_seconds(some, seconds, parts, twice) <= allowed:
            return some, twice
    return candidates[:1], False


def crossing_seconds(
    candidates: Sequence[Candidate], seconds: Mapping[str, float], parts: LabelParts, twice: bool
) -> float:
    """Seconds of all models that folds take at most, of seconds by candidate that one of all videos takes."""
    ways, folds = ways_of(candidates, parts.measured), range(1, parts.measured + 1)
    runs = Counter(measured_runs(ways, folds)) + Counter(Run(one.name, ()) for one in candidates)
    if twice:
        dearest = max(ways, key=lambda way: sum(seconds[one.name] for one in way.candidates))
        runs += Counter(measured_runs([dearest], folds)) + Counter(dearest.runs(frozenset(), folds))
    cost = {run: RUN_STARTING + share_of(run, parts.folds) * seconds[run.candidate] for run in runs}
    return sum(n * cost[run] for run, n in runs.items())
