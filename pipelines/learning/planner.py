"""Plan a training job within a time limit, from the time of each step, which is measured for a few seconds."""

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import torch

from lstr.config import WindowConfig
from lstr.errors import TooShortError, VideoError
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.presets import Preset
from lstr.extractors.stages import closed_after, torch_threads
from lstr.extractors.streams import CHANNELS_OF, PICTURES, in_training_order
from lstr.extractors.video.inputs import local_copy
from lstr.extractors.video.reader import open_chunks
from lstr.files.remote import Place
from lstr.labels.label_set import BACKGROUND, actions_of
from lstr.pipelines.failures import skip_failure
from lstr.pipelines.features.chunk_cache import planes_of
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.features.extraction import row_bytes, widths_of
from lstr.pipelines.learning import plan
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, Division
from lstr.pipelines.learning.plan import NETWORKS, TIME_MARGIN, LearnOptions, LearnPlan
from lstr.pipelines.progress import Notice
from lstr.pipelines.training.config import TrainConfig, preset_for, resolve
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.network_config import FinetuneConfig, trainable_network
from lstr.pipelines.training.networks import best_at_once, threads_of
from lstr.pipelines.training.recogniser import Initial, NetworksToTrain, make_optimiser, recogniser
from lstr.pipelines.training.run import keep_freed_memory
from lstr.pipelines.training.training_videos import check_room, chunks_of
from lstr.pipelines.training.window_samples import count_steps, draw_windows

APPEARANCE = ("rgb", "grey")  # streams of appearance; the others are streams of motion
# The `model.` settings of an RNN; a model with other settings is an LSTR.
RNN_SETTINGS = ("kind", "cell", "deltas", "d_model", "dropout", "work_length", "rgb_dim", "flow_dim")

# Minimum share of the default training that networks get with folds. With less time, videos are held out, so that only
# one network per stream is trained. On UT-Interaction two networks with an eighth of the default training had mAP .65,
# and one network with a third of it had .76.
MIN_SHARE = 2 / 3
MIN_DRAWS = 96  # images per epoch; a time limit that allows fewer is an error
STEP_START_S, MODEL_START_S = 3.0, 1.0
REPORT_S_PER_CHUNK = 0.02  # with resampling and figures
FEATURES_SHARE = 0.2  # time of computing an image's features relative to a training step; 0.16 was measured
TIMED_CHUNKS = 12  # of the first video
FEW_IMAGES = 4  # that time a network without training
# Seconds after which a step is not repeated; the first one warms up, and may be five times as slow.
LONGEST_STEPS_S = (10.0, 2.0, 2.0)


class Header(NamedTuple):
    """Number of chunks of a video by its header, and width and height in pixels at which flow is computed."""

    chunks: int
    size: tuple[int, int] | None = None


def models_of(streams: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the streams of each model: all but poses, those of motion if there is appearance too, and poses.

    Motion generalises better to other places than appearance. On actions of UT-Interaction that were recorded in
    another place, mAP was .794 with motion, .698 with appearance and .808 with both. The average of the models of
    motion and of both had .818, as much as an average of six models. Poses are better averaged than joined.
    """
    images = tuple(stream for stream in streams if stream != "pose")
    motion = tuple(stream for stream in images if stream not in APPEARANCE)
    poses = tuple(stream for stream in streams if stream == "pose")
    return tuple(dict.fromkeys(filter(None, (images, motion, poses))))  # each once, without empty ones


def configure_models(
    options: LearnOptions, preset: Preset, lengths: Sequence[int]
) -> tuple[str, list[tuple[WindowConfig, TrainConfig]]]:
    """Return the training preset of the models and the settings of each.

    lengths: chunks of each training video. Raises ConfigError for unknown or unfit settings.
    """
    settings, widths = options.model_settings, widths_of(preset)
    is_rnn = all(name.removeprefix("model.") in RNN_SETTINGS for name in settings if name.startswith("model."))
    name = preset_for(sum(lengths), settings, kind="rnn" if is_rnn else "lstr")
    found = []
    for streams in models_of(preset.streams):
        dims = [sum(widths[s] for s in streams if (s in PICTURES) == is_picture) for is_picture in (True, False)]
        found.append(resolve(name, options.settings_of(streams, name), (dims[0], dims[1])))
    return name, found


class Planner:
    """Planner of a training job on this machine.

    Args:
        headers: The headers of all readable labelled videos.
    """

    def __init__(
        self,
        options: LearnOptions,
        networks: NetworksToTrain,
        headers: Mapping[str, Header],
        videos: Mapping[str, Place],
        device: str,
    ):
        self.options, self.networks, self.headers, self.videos = options, networks, headers, videos
        self.device = device

    def choose(
        self, division: Division, held_out: Division | None
    ) -> Generator[Notice, None, tuple[Division, LearnPlan]]:
        """Measure this machine, and return the best plan within the time limit, with fewer images or without folds.

        `held_out` is the alternative to folds if the time is short; None without an alternative. Raises ConfigError for
        settings of the models, TooShortError, OutputError and VideoError.
        """
        preset, configs, classes = self.networks.preset, self.networks.configs, division.labels.classes
        headers, n_networks = self.headers, 1 + division.folds
        lengths = [headers[i].chunks for i in division.of(TRAINING)]
        # before measuring, so that a wrong setting is reported at once
        _, (model, *_) = configure_models(self.options, preset, lengths)
        yield Notice("measuring this machine …", warning=False)
        # of the stream with most images: all streams have the same number of networks at once
        images = max(config.images_of(sum(lengths)) for config in configs.values())
        self.at_once = min(self.options.at_once or best_at_once(n_networks, images, self.device), n_networks)
        threads = [threads_of(self.at_once)] if self.at_once > 1 else [1, torch.get_num_threads()]
        image, self.threads = measure_training(preset, configs, len(classes), self.device, threads)
        share = -(-n_networks // self.at_once) / n_networks  # of networks that are trained at once
        # seconds to train a network on a sample, to train a model on all training videos, and to decode a chunk
        self.sample_s = {stream: seconds * share * configs[stream].segments for stream, seconds in image.items()}
        with torch_threads(self.threads):
            self.model_s = measure_model(*model, lengths, classes, self.device)
        shortest = sorted((i for i in headers if headers[i].chunks), key=lambda i: (headers[i].chunks, i))
        self.chunk_s = measure_chunks([self.videos[i] for i in shortest], preset)
        if held_out:
            try:
                return division, self.plan(division, is_last=False)
            except TooShortError as error:
                held = "Some videos are held out for measuring and not used for training."
                yield Notice(f"{error} {'No folds are used.' if division.of(TESTING) else held}")
                division = held_out
        return division, self.plan(division, is_last=True)

    def plan(self, division: Division, is_last: bool) -> LearnPlan:
        """Plan a learning. A time limit leaves networks fewer images per epoch.

        is_last: whether no cheaper plan is left to try. Otherwise networks get MIN_SHARE of their training or more.

        Raises:
            TooShortError: The time limit leaves networks too little training.
            OutputError: The cache has no room for the chunks.
        """
        options, preset, configs, folds = self.options, self.networks.preset, self.networks.configs, division.folds
        chunks, n_videos, cached = Counter[str](), Counter[str](), 0
        planes, square = planes_of(chunks_of(preset)), (preset.long_side, preset.long_side)
        for video_id, video in division.labels.videos.items():
            header = self.headers[video_id]
            n_videos[video.subset] += 1
            chunks[video.subset] += header.chunks
            cached += header.chunks * math.prod(header.size or square) * planes if video.subset != TESTING else 0
        check_room(n_videos.total() - n_videos[TESTING], cached, options.cache_size)
        draws = max(config.draws_of(chunks[TRAINING]) for config in configs.values())
        if options.seconds is not None:
            least = min(draws, MIN_DRAWS) if is_last else math.ceil(draws * MIN_SHARE)
            others, whole = (sum(self.steps(division, chunks, n).values()) for n in (0, draws))
            per_draw = (whole - others) / draws
            fitting = math.floor((options.seconds / TIME_MARGIN - others) / per_draw) if per_draw else draws
            needed = TIME_MARGIN * (others + per_draw * least)
            if fitting < least or needed > options.seconds:
                in_folds = f" in {folds} folds" if folds else ""
                raise TooShortError(
                    f"Learning{in_folds} takes at least {math.ceil(needed)} s on this machine, and the time limit is "
                    f"{options.seconds:g} s.",
                    f"use --time {math.ceil(needed / 60)}m or more, or fewer videos.",
                )
            draws = min(draws, fitting)
        entries = [trainable_network(part.network, stream) for stream, part in preset.parts.items()]
        network_bytes = sum(entry.training_bytes for entry in entries)
        return LearnPlan(
            dict(n_videos),
            dict(chunks),
            len(actions_of(division.labels.classes)),
            division.sentence,
            self.steps(division, chunks, draws),
            {stream: config.epochs for stream, config in configs.items()},
            draws,
            models_of(preset.streams),
            configure_models(options, preset, [self.headers[i].chunks for i in division.of(TRAINING)])[0],
            int(cached + chunks.total() * row_bytes(preset) + (1 + folds) * network_bytes),
            self.threads,
            self.at_once,
            options.seconds,
            folds,
            is_one_recording=not division.folds_of(division.of(TRAINING)),
        )

    def steps(self, division: Division, chunks: Mapping[str, int], draws: int) -> dict[str, float]:
        """Return the seconds of all steps, if an epoch of the networks has N draws; chunks: number by subset."""
        training, validation, testing = (chunks[subset] for subset in (TRAINING, VALIDATION, TESTING))
        preset, configs, folds = self.networks.preset, self.networks.configs, division.folds
        trained = in_training_order([stream for stream, config in configs.items() if config.epochs])
        image_s = {s: configs[s].mean_area * self.sample_s[s] for s in trained}
        network_s = {s: (1 + folds) * (STEP_START_S + configs[s].epochs * draws * image_s[s]) for s in trained}
        features = testing * self.chunk_s
        for stream, config in configs.items():
            row = FEATURES_SHARE * self.sample_s[stream] * preset.parts[stream].crops
            # by networks that lack each video, and by each network that has seen some: once, and for 3 folds 3 times
            passes = 1 + folds if config.epochs else 1
            features += (passes * training + validation + testing) * row
        model_folds = folds or (0 if validation else len(division.folds_of(division.of(TRAINING))))
        model = MODEL_START_S * (1 + model_folds) + self.model_s * max(1, model_folds)  # a fold trains on the others
        return {
            plan.CHUNKS: STEP_START_S + (training + validation) * self.chunk_s,
            **{NETWORKS[stream]: seconds for stream, seconds in network_s.items()},
            plan.FEATURES: STEP_START_S + features,
            plan.MODEL: len(models_of(preset.streams)) * model,
            plan.THRESHOLDS: STEP_START_S,
            plan.MEASURE: STEP_START_S + (testing or training) * REPORT_S_PER_CHUNK,
            plan.PACK: 1.0,
        }


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
    raise VideoError("None of the labelled videos can be read.", "run `lstr info VIDEO` to see the reason.")


def measure_training(
    preset: Preset, configs: Mapping[str, FinetuneConfig], n_classes: int, device: str, threads: Sequence[int]
) -> tuple[dict[str, float], int]:
    """Return the seconds of an image in a training step, by stream, and the fastest of some numbers of threads.

    If other programs keep the cores busy, threads wait for each other, and one thread is faster than several.
    """
    kind = torch.device(device).type

    def measure(stream: str, config: FinetuneConfig) -> float:
        model = recogniser(stream, preset.parts[stream], n_classes, config, Initial())
        model.to(device=device).to(memory_format=torch.channels_last).train()
        optimiser = make_optimiser(model, config)
        n = config.batch_size if config.epochs else FEW_IMAGES
        shape = (n, config.segments, CHANNELS_OF[stream], *config.input_size)
        images, labels = torch.zeros(shape, dtype=torch.uint8), torch.zeros(n, dtype=torch.long)

        def step() -> None:
            is_rough = config.precision == "bf16"
            with torch.autocast(kind, torch.bfloat16, enabled=is_rough), torch.set_grad_enabled(config.epochs > 0):
                loss = model(*model.prepare(images, labels))
            if config.epochs:
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
            if kind == "cuda":
                torch.cuda.synchronize()

        seconds = fastest(step, device) / (n * config.segments)
        return seconds if config.epochs else seconds / FEATURES_SHARE  # without epochs it computes features only

    found = []
    for n in sorted({*threads}):
        with torch_threads(n), torch.random.fork_rng(devices=[]), keep_freed_memory(kind):
            seconds = {stream: measure(stream, config) for stream, config in configs.items()}
        found.append((sum(seconds.values()), n, seconds))
    _, n, seconds = min(found, key=lambda measured: measured[0])
    return seconds, n


def measure_model(
    model: WindowConfig, config: TrainConfig, lengths: Sequence[int], classes: Sequence[str], device: str
) -> float:
    """Return the seconds to train a model on videos of these lengths in chunks.

    Raises ConfigError if no window fits into a video.
    """
    background = np.array([name == BACKGROUND for name in classes], np.uint8)
    videos = []
    for n in filter(None, lengths):  # zeros that take no memory
        rgb, flow = (np.broadcast_to(np.float32(0), (n, width)) for width in (model.rgb_dim, model.flow_dim))
        videos.append(LabelledVideo("", TwoStreamArray(rgb, flow), np.broadcast_to(background, (n, len(classes)))))
    steps, _ = count_steps(videos, model, config)
    # a measurement leaves the random numbers of the caller as they were
    with torch.random.fork_rng(devices=[]):
        learner = Learner(videos, classes, model, config, device=device)
        drawn = draw_windows(videos, model, config, 0)[: config.batch_size]
        seconds = fastest(lambda: learner.step(learner.make_batch(drawn), 0, lr=0.0), device)  # waits for its loss
    return steps * seconds


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
