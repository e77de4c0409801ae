"""The plan of `lstr learn`: its steps, how long they take on this machine, and how it keeps to a time limit."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from lstr.config import WindowConfig
from lstr.errors import TooShortError
from lstr.extractors.presets import Preset
from lstr.extractors.stages import torch_threads
from lstr.extractors.streams import PICTURES, STREAMS, in_training_order
from lstr.files.remote import Place
from lstr.pipelines.features.chunk_cache import planes_of
from lstr.pipelines.features.extraction_plan import cost_of, row_bytes, widths_of
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, Division, folds_of
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.training.config import TrainConfig, preset_for, resolve
from lstr.pipelines.training.frame_cache import check_room, chunks_of
from lstr.pipelines.training.model_run import check_teacher
from lstr.pipelines.training.networks import best_at_once, threads_of
from lstr.pipelines.training.recogniser import NetworksToTrain
from lstr.pipelines.training.speed import FEATURES_SHARE, measure_chunks, measure_model, measure_training

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

# The share of their training that networks get at least. With less time, videos are held out, so that one network of
# each stream is trained instead of one for each fold; then one stream is dropped. Two networks with an eighth of the
# training that they had had by default had mAP .65 on UT-Interaction, and one network with a third of it .76.
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
    """The steps of a learning and what they work on.

    Attributes:
        videos: The number of videos by subset.
        chunks: The number of chunks by subset.
        n_classes: Actions to learn.
        split: How the result is measured, a sentence.
        steps: All steps in their order.
        epochs: Epochs of the network of each stream; 0 for a network that is not trained.
        draws: Images per epoch.
        models: The streams of each model; the scores of all models are averaged.
        preset: The training preset of the models.
        bytes: Disk space, about.
        threads: Threads of torch. A resumed run keeps the number, so that it ends in the same bits.
        at_once: Networks of a stream that are trained at once, each with `threads`.
        budget: The time limit in seconds.
        folds: Folds of the videos, each with its own networks and models; 0 if videos are held out instead.
        recipe: How features are made, if the plan chose it.
        is_one_recording: Whether all training videos are of one recording.
    """

    videos: Mapping[str, int]
    chunks: Mapping[str, int]
    n_classes: int
    split: str
    steps: tuple[PlannedStep, ...]
    epochs: Mapping[str, int]
    draws: int
    models: tuple[tuple[str, ...], ...]
    preset: str
    bytes: int
    threads: int = 1
    at_once: int = 1
    budget: float | None = None
    folds: int = 0
    recipe: str | None = None
    is_one_recording: bool = False

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
        """Return the plan of a JSON object. Raises TypeError or KeyError for that of another version."""
        kept = {name: value for name, value in values.items() if name != "seconds"}
        kept["steps"] = tuple(PlannedStep(step["key"], step["seconds"]) for step in values["steps"])
        kept["models"] = tuple(map(tuple, values["models"]))
        return cls(**kept)


@dataclass(frozen=True)
class Header:
    """What the header of a video says: chunks, and width and height in pixels at which flow is computed."""

    chunks: int
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Speed:
    """How fast this machine is, in seconds.

    Attributes:
        chunk: To decode a chunk, with its flow.
        sample: To train a network on a sample, by stream. If several networks are trained at once, the share of each.
        model: To train a model on all training videos.
        threads: Threads of torch that are fastest.
        at_once: Networks of a stream that are trained at once.
    """

    chunk: float
    sample: Mapping[str, float]
    model: float
    threads: int = 1
    at_once: int = 1


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


def make_plan(
    options: LearnOptions,
    division: Division,
    networks: NetworksToTrain,
    headers: Mapping[str, Header],
    speed: Speed,
    is_last: bool = True,
) -> LearnPlan:
    """Plan a learning. A time limit leaves networks fewer images per epoch.

    is_last: whether no cheaper plan is left to try. Otherwise networks get MIN_SHARE of their training or more.

    Raises:
        TooShortError: The time limit leaves networks too little training.
        OutputError: The cache has no room for the chunks.
    """
    preset, configs, folds = networks.preset, networks.configs, division.folds
    chunks, n_videos, cached = Counter[str](), Counter[str](), 0
    planes, square = planes_of(chunks_of(preset)), (preset.long_side, preset.long_side)
    for video_id, video in division.labels.videos.items():
        header = headers[video_id]
        n_videos[video.subset] += 1
        chunks[video.subset] += header.chunks
        cached += header.chunks * math.prod(header.size or square) * planes if video.subset != TESTING else 0
    training, validation, testing = (chunks[subset] for subset in (TRAINING, VALIDATION, TESTING))
    epochs = {stream: config.epochs for stream, config in configs.items()}
    draws = max(config.draws_of(training) for config in configs.values())
    row = {stream: FEATURES_SHARE * speed.sample[stream] * preset.parts[stream].crops for stream in epochs}
    # features by networks that lack each video, and by each network that has seen some: once, and for 3 folds 3 times
    passes = {stream: 1 + folds if n else 1 for stream, n in epochs.items()}
    features = sum((passes[s] * training + validation + testing) * row[s] for s in epochs) + testing * speed.chunk
    model_folds = folds or (0 if validation else len(folds_of(division.of(TRAINING))))
    model = MODEL_START_S * (1 + model_folds) + speed.model * max(1, model_folds)  # each fold trains on the others

    def steps(draws: int) -> tuple[PlannedStep, ...]:
        trained = in_training_order([stream for stream, n in epochs.items() if n])
        seconds = {s: (1 + folds) * (STEP_START_S + epochs[s] * draws * speed.sample[s]) for s in trained}
        return (
            PlannedStep(CHUNKS, STEP_START_S + (training + validation) * speed.chunk),
            *(PlannedStep(NETWORKS[stream], seconds[stream]) for stream in trained),
            PlannedStep(FEATURES, STEP_START_S + features),
            PlannedStep(MODEL, len(models_of(preset.streams)) * model),
            PlannedStep(THRESHOLDS, STEP_START_S),
            PlannedStep(MEASURE, STEP_START_S + (testing or training) * REPORT_S_PER_CHUNK),
            PlannedStep(PACK, 1.0),
        )

    if options.seconds is not None:
        least = min(draws, MIN_DRAWS) if is_last else math.ceil(draws * MIN_SHARE)
        others = sum(step.seconds for step in steps(0))
        per_draw = (sum(step.seconds for step in steps(draws)) - others) / draws
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
    check_room(n_videos.total() - n_videos[TESTING], cached, options.cache_size)
    lengths = [headers[i].chunks for i in division.of(TRAINING)]
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
        configure_models(options, preset, lengths)[0],
        int(cached + chunks.total() * row_bytes(preset) + (1 + folds) * network_bytes),
        speed.threads,
        speed.at_once,
        options.seconds,
        folds,
        is_one_recording=not folds_of(division.of(TRAINING)),
    )


def measure_speed(
    options: LearnOptions,
    division: Division,
    networks: NetworksToTrain,
    headers: Mapping[str, Header],
    videos: Mapping[str, Place],
    device: str,
) -> Speed:
    """Measure this machine for a few seconds. Raises ConfigError for settings of the model, VideoError."""
    preset, configs, classes = networks.preset, networks.configs, division.labels.classes
    lengths = [headers[i].chunks for i in division.of(TRAINING)]
    _, models = configure_models(options, preset, lengths)
    n_networks = 1 + division.folds
    images = max(config.epochs * config.draws_of(sum(lengths)) for config in configs.values())
    at_once = min(options.at_once or best_at_once(n_networks, images, device), n_networks)
    threads = [threads_of(at_once)] if at_once > 1 else [1, torch.get_num_threads()]
    image, best_threads = measure_training(preset, configs, len(classes), device, threads)
    share = -(-n_networks // at_once) / n_networks  # of networks that are trained at once
    sample = {stream: seconds * share * configs[stream].segments for stream, seconds in image.items()}
    with torch_threads(best_threads):
        model = max(measure_model(*one, lengths, classes, device) for one in models[:1])
    shortest = sorted((i for i in headers if headers[i].chunks), key=lambda i: (headers[i].chunks, i))
    chunk = measure_chunks([videos[i] for i in shortest], preset)
    return Speed(chunk, sample, model, best_threads, at_once)
