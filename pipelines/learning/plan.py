"""The plan of `lstr learn`: its steps, how long they take on this machine, and how it keeps to a time limit."""

import math
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgspec
import torch

from lstr.config import WindowConfig
from lstr.errors import TooShortError
from lstr.extractors.presets import Preset
from lstr.extractors.stages import torch_threads
from lstr.extractors.streams import PICTURES, STREAMS, in_training_order
from lstr.files.remote import Place
from lstr.pipelines.features.chunk_cache import planes_of
from lstr.pipelines.features.extraction import cost_of, row_bytes, widths_of
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, Division, folds_of
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.progress import Notice
from lstr.pipelines.training.config import TrainConfig, check_teacher, preset_for, resolve
from lstr.pipelines.training.networks import best_at_once, threads_of
from lstr.pipelines.training.recogniser import NetworksToTrain
from lstr.pipelines.training.speed import FEATURES_SHARE, measure_chunks, measure_model, measure_training
from lstr.pipelines.training.training_videos import check_room, chunks_of

CHUNKS, FEATURES, MODEL, THRESHOLDS, MEASURE, PACK = "chunks", "features", "model", "thresholds", "measure", "pack"
NETWORKS = {stream: f"{stream} network" for stream in STREAMS}
STEP_NAMES = {
    CHUNKS: "compute frames and flow",
    **{key: f"train the {stream if stream != 'rgb' else 'RGB'} network" for stream, key in NETWORKS.items()},
    FEATURES: "compute features",
    MODEL: "train the model",
    THRESHOLDS: "choose thresholds",
    MEASURE: "measure on held-out videos",
    PACK: "write the model file",
}
APPEARANCE = ("rgb", "grey")  # the streams that see how things look; the others see how they move
# The `model.` settings of an RNN; a model with other settings is an LSTR.
RNN_SETTINGS = ("kind", "cell", "d_model", "dropout", "work_length", "rgb_dim", "flow_dim")

# The share of their training that networks get at least in folds. With less time, videos are held out, so that one
# network of each stream is trained instead of one for each fold. Two networks with an eighth of the training that they
# had had by default had mAP .65 on UT-Interaction, and one network with a third of it .76.
MIN_SHARE = 2 / 3
MIN_DRAWS = 96  # images per epoch; a time limit with room for fewer is refused
TIME_MARGIN = 1.2  # a plan takes at most this much longer than measured, so that a time limit holds
STEP_START_S, MODEL_START_S = 3.0, 1.0
REPORT_S_PER_CHUNK = 0.02  # with resampling and figures


@dataclass(frozen=True)
class PlannedStep:
    """A step and the seconds that it takes."""

    key: str
    seconds: float

    @property
    def name(self) -> str:
        """The step, for people."""
        return STEP_NAMES[self.key]


@dataclass(frozen=True)
class StepProgress:
    """How much of a step is done, and the seconds that it and all later steps still take."""

    step: PlannedStep
    number: int
    steps: int
    done: int
    total: int
    left: float


@dataclass(frozen=True)
class LearnPlan:
    """The steps of a learning and what they work on."""

    videos: Mapping[str, int]
    """The number of videos by subset; `chunks` alike."""
    chunks: Mapping[str, int]
    n_classes: int
    split: str
    """How the result is measured, a sentence."""
    steps: tuple[PlannedStep, ...]
    epochs: Mapping[str, int]
    """By stream; 0 for a network that is not trained."""
    draws: int
    """Images per epoch."""
    models: tuple[tuple[str, ...], ...]
    """The streams of each model; the scores of all models are averaged."""
    preset: str
    """The training preset of the models."""
    bytes: int
    """Disk space, about."""
    threads: int = 1
    """Threads of torch. A resumed run keeps the number, so that it ends in the same bits."""
    at_once: int = 1
    """Networks of a stream that are trained at once, each with `threads`."""
    budget: float | None = None
    """The time limit in seconds."""
    folds: int = 0
    """Folds of the videos, each with its own networks and models; 0 if videos are held out instead."""
    recipe: str | None = None
    """How features are made, if the plan chose it."""
    is_one_recording: bool = False
    """Whether all training videos are of one recording."""

    @property
    def warning(self) -> str:
        """Why thresholds may be poor; empty if they are chosen on videos that the networks have not seen."""
        if self.folds or self.videos.get(VALIDATION) or not any(self.epochs.values()):
            return ""
        if self.is_one_recording:
            return (
                "the model is trained on one recording and may work for that one alone, and there is no other one to "
                "choose thresholds on: label a second one before you rely on it."
            )
        return (
            "thresholds are chosen on videos that the networks have learnt from, which score higher than new ones: "
            "expect many false alarms. Folds avoid that, and so do validation videos in addition to the testing ones."
        )

    @property
    def seconds(self) -> float:
        """Seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    def since(self, key: str) -> tuple[PlannedStep, ...]:
        """Return a step and all later steps."""
        return self.steps[[step.key for step in self.steps].index(key) :]

    def progress(self, key: str, done: int = 0, total: int = 0) -> StepProgress:
        """Return the progress of a step as part of all steps."""
        step, *later = self.since(key)
        left = step.seconds * (1 - done / max(1, total)) + sum(step.seconds for step in later)
        return StepProgress(step, len(self.steps) - len(later), len(self.steps), done, total, left)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        steps = [{"key": step.key, "name": step.name, "seconds": step.seconds} for step in self.steps]
        return {**asdict(self), "steps": steps, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LearnPlan":
        """Return the plan of a JSON object. Raises msgspec.ValidationError for that of another version."""
        return msgspec.convert(values, cls)


class Header(NamedTuple):
    """What the header of a video says: chunks, and width and height in pixels at which flow is computed."""

    chunks: int
    size: tuple[int, int] | None = None


def models_of(streams: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the streams of each model: one model of all, and one of motion alone if there is appearance too.

    How things move holds better in another place than how they look: on actions of UT-Interaction that were recorded
    elsewhere the model of motion had mAP .794, that of appearance .698, that of both .808, and the average of the first
    and the last .818, as much as an average of six models.
    """
    motion = tuple(stream for stream in streams if stream not in APPEARANCE)
    return (tuple(streams), motion) if motion and motion != tuple(streams) else (tuple(streams),)


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
        found.append(resolve(name, settings, (dims[0], dims[1])))
        check_teacher(*found[-1], max(lengths))
    return name, found


class Planner:
    """Plans a learning for this machine.

    Args:
        headers: of all labelled videos that can be read.
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
        """Measure this machine, and plan the best that the time limit allows, with fewer images or without folds.

        held_out: what takes the place of folds if the time is short, if anything may. Raises ConfigError for settings
        of the models, TooShortError, OutputError and VideoError.
        """
        configure_models(self.options, self.networks.preset, self.lengths(division))
        yield Notice("measuring this machine …", warning=False)
        self.measure(division)
        if held_out:
            try:
                return division, self.plan(division, is_last=False)
            except TooShortError as error:
                yield Notice(f"{error} So videos are held out to measure on, and not learnt from.")
                division = held_out
        return division, self.plan(division, is_last=True)

    def lengths(self, division: Division) -> list[int]:
        """Return the chunks of each training video."""
        return [self.headers[i].chunks for i in division.of(TRAINING)]

    def measure(self, division: Division) -> None:
        """Measure this machine for a few seconds. Raises ConfigError for settings of the model, VideoError."""
        preset, configs, classes = self.networks.preset, self.networks.configs, division.labels.classes
        lengths, n_networks = self.lengths(division), 1 + division.folds
        _, (model, *_) = configure_models(self.options, preset, lengths)
        images = max(config.epochs * config.draws_of(sum(lengths)) for config in configs.values())
        self.at_once = min(self.options.at_once or best_at_once(n_networks, images, self.device), n_networks)
        threads = [threads_of(self.at_once)] if self.at_once > 1 else [1, torch.get_num_threads()]
        image, self.threads = measure_training(preset, configs, len(classes), self.device, threads)
        share = -(-n_networks // self.at_once) / n_networks  # of networks that are trained at once
        # seconds to train a network on a sample, to train a model on all training videos, and to decode a chunk
        self.sample_s = {stream: seconds * share * configs[stream].segments for stream, seconds in image.items()}
        with torch_threads(self.threads):
            self.model_s = measure_model(*model, lengths, classes, self.device)
        headers = self.headers
        shortest = sorted((i for i in headers if headers[i].chunks), key=lambda i: (headers[i].chunks, i))
        self.chunk_s = measure_chunks([self.videos[i] for i in shortest], preset)

    def plan(self, division: Division, is_last: bool) -> LearnPlan:
        """Plan a learning. A time limit leaves networks fewer images per epoch.

        is_last: whether no cheaper plan is left to try. Otherwise networks get MIN_SHARE of their training or more.

        Raises:
            TooShortError: The time limit leaves networks too little training.
            OutputError: The cache has no room for the chunks.
        """
        options, preset, configs = self.options, self.networks.preset, self.networks.configs
        folds = division.folds
        chunks, n_videos, cached = Counter[str](), Counter[str](), 0
        planes, square = planes_of(chunks_of(preset)), (preset.long_side, preset.long_side)
        for video_id, video in division.labels.videos.items():
            header = self.headers[video_id]
            n_videos[video.subset] += 1
            chunks[video.subset] += header.chunks
            cached += header.chunks * math.prod(header.size or square) * planes if video.subset != TESTING else 0
        check_room(n_videos.total() - n_videos[TESTING], cached, options.cache_size)
        epochs = {stream: config.epochs for stream, config in configs.items()}
        draws = max(config.draws_of(chunks[TRAINING]) for config in configs.values())

        def steps(draws: int) -> tuple[PlannedStep, ...]:
            return self.steps(division, preset, epochs, chunks, draws)

        if options.seconds is not None:
            least = min(draws, MIN_DRAWS) if is_last else math.ceil(draws * MIN_SHARE)
            others, whole = (sum(step.seconds for step in steps(n)) for n in (0, draws))
            per_draw = (whole - others) / draws
            fitting = math.floor((options.seconds / TIME_MARGIN - others) / per_draw) if per_draw else draws
            needed = TIME_MARGIN * (others + per_draw * least)
            if fitting < least or needed > options.seconds:
                in_folds = f" in {folds} folds" if folds else ""
                raise TooShortError(
                    f"Learning{in_folds} takes at least {math.ceil(needed)} s on this machine, and the time limit is "
                    f"{options.seconds:g} s.",
                    f"give --time {math.ceil(needed / 60)}m or more, or fewer videos.",
                )
            draws = min(draws, fitting)
        network_bytes = sum(cost_of(part.network).bytes for part in preset.parts.values())
        return LearnPlan(
            dict(n_videos),
            dict(chunks),
            len(division.labels.classes) - 1,
            division.sentence,
            steps(draws),
            epochs,
            draws,
            models_of(preset.streams),
            configure_models(options, preset, self.lengths(division))[0],
            int(cached + chunks.total() * row_bytes(preset) + (1 + folds) * network_bytes),
            self.threads,
            self.at_once,
            options.seconds,
            folds,
            is_one_recording=not folds_of(division.of(TRAINING)),
        )

    def steps(
        self, division: Division, preset: Preset, epochs: Mapping[str, int], chunks: Mapping[str, int], draws: int
    ) -> tuple[PlannedStep, ...]:
        """Return all steps with their times, if an epoch of the networks has so many draws."""
        training, validation, testing = (chunks[subset] for subset in (TRAINING, VALIDATION, TESTING))
        folds, n_models = division.folds, len(models_of(preset.streams))
        trained = in_training_order([stream for stream, n in epochs.items() if n])
        networks = {s: (1 + folds) * (STEP_START_S + epochs[s] * draws * self.sample_s[s]) for s in trained}
        features = testing * self.chunk_s
        for stream, n in epochs.items():
            row = FEATURES_SHARE * self.sample_s[stream] * preset.parts[stream].crops
            # by networks that lack each video, and by each network that has seen some: once, and for 3 folds 3 times
            passes = 1 + folds if n else 1
            features += (passes * training + validation + testing) * row
        model_folds = folds or (0 if validation else len(folds_of(division.of(TRAINING))))
        model = MODEL_START_S * (1 + model_folds) + self.model_s * max(1, model_folds)  # a fold trains on the others
        return (
            PlannedStep(CHUNKS, STEP_START_S + (training + validation) * self.chunk_s),
            *(PlannedStep(NETWORKS[stream], seconds) for stream, seconds in networks.items()),
            PlannedStep(FEATURES, STEP_START_S + features),
            PlannedStep(MODEL, n_models * model),
            PlannedStep(THRESHOLDS, STEP_START_S),
            PlannedStep(MEASURE, STEP_START_S + (testing or training) * REPORT_S_PER_CHUNK),
            PlannedStep(PACK, 1.0),
        )
