"""The training job: train a checkpoint on features and labels, with one process or with torchrun."""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from lstr.chunk import CLOCK
from lstr.errors import ConfigError, RecipeError
from lstr.extractors.devices import choose_device
from lstr.extractors.streams import STREAMS
from lstr.files.atomic import check_exists
from lstr.labels.check import stop_at_errors
from lstr.pipelines.features.dataset import DatasetOptions, describe_overlap, network_overlap, read_dataset
from lstr.pipelines.features.feature_files import NOTHING, Stated, split_settings
from lstr.pipelines.progress import Finished, LabelFindings, Notice
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import preset_for, preset_named, read_config, resolve
from lstr.pipelines.training.model_run import ModelRun, Task
from lstr.pipelines.training.run import RunFolder, Step, open_events
from lstr.settings import check_fields

RNN_IS_BETTER = "--preset rnn-small had a higher mAP on two small sets (0.67 to 0.59, and 0.93 to 0.92)"


@dataclass(frozen=True)
class TrainOptions(DatasetOptions):
    """What to train on what; `lstr train` has an option or setting for each."""

    output: str | Path
    """The folder of the run."""
    preset: str | None = None
    """None for a preset that suits the amount of training video."""
    config: str | Path | None = None
    """The config.json of another run, to start from its settings and preset."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By `model.NAME` and `train.NAME`, in addition to preset and config; `features.NAME` describes features of other
    people (`lstr.pipelines.features.feature_files.Stated`)."""
    streams: Sequence[str] = ()
    """Streams that the model sees; empty for all that the features have."""
    eval_subset: str = "validation"
    resume: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of range."""
        check_fields(self)
        if wrong := [stream for stream in self.streams if stream not in STREAMS]:
            raise ConfigError(f"Unknown stream: {wrong[0]!r}.", f"choose among {', '.join(STREAMS)}.")


@dataclass(frozen=True)
class Trained:
    """The files of a finished run."""

    checkpoint: Path  # best.pt if the run chose one, else checkpoint.pt
    held_out: bool = False  # whether the labels have videos that `lstr evaluate` scores
    takes_videos: bool = True  # whether the features of new videos can be computed


Event = LabelFindings | Notice | Step | Finished[Trained]


def train(options: TrainOptions) -> Iterator[Event]:
    """Train a model, or resume a run. Started by torchrun, rank 0 alone yields events.

    Yields LabelFindings and Notices before the first step, a Step after each log line, last Finished. Raises
    LabelsError, RecipeError or ConfigError if inputs and options do not fit together, and as `train_model`.
    """
    with ranks.join_ranks(choose_device(options.device)) as device:
        for event in run_job(options, device):
            if ranks.is_first():
                yield event


def planned_settings(options: TrainOptions) -> Iterator[LabelFindings | Finished[dict]]:
    """Yield, in Finished, all settings of the run that `train` would start, as its config.json would hold them."""
    task = yield from read_task(options)
    yield Finished(task.settings(choose_device(options.device)))


def run_job(options: TrainOptions, device: str) -> Iterator[Event]:
    """Train on this process; see `train`."""
    task = yield from read_task(options)
    split, config, folder = task.split, task.config, Path(options.output)
    recipe, last, clock, n_videos = split.folder.recipe, None, split.clock, len(split.videos)
    if recipe and recipe.random_streams:
        yield Notice(f"the features come from random {recipe.random_streams} networks.")
    if seen := network_overlap(split, task.model):
        yield Notice(
            f"the {describe_overlap(seen, n_videos, 'training videos')}: features of new videos will be worse; "
            "`lstr learn` scores each video by networks that were not trained on it."
        )
    if task.validation and (seen := network_overlap(task.validation, task.model)):
        yield Notice(
            f"the {describe_overlap(seen, len(task.validation.videos), f'{options.eval_subset} videos')}: "
            "best.pt and train.patience use scores that are too high for new videos."
        )
    if clock != CLOCK:
        work, long, lasts = task.model.work_length, task.model.long_length, clock.length
        text = f"work memory of {work} chunks is {lasts(work):.1f} s at {float(clock.rate):.4g} a second"
        text += f", long memory of {long} is {lasts(long):.1f} s" if task.model.n_long else ""
        yield Notice(f"{text}.", warning=False)
    if not all(split.dims):
        stream = "rgb" if split.dims[0] else "flow"
        yield Notice(f"the features have one stream, {stream}: the model takes only this one.", warning=False)
    if options.resume and not RunFolder(folder).has_state():
        yield Notice(f"{folder} contains no run to resume: a new one starts.", warning=False)
    if not options.preset and not options.config:
        hours = f"there are {clock.length(split.n_chunks) / 3600:.1f} hours of training video"
        better = f"; {RNN_IS_BETTER}" if task.preset == "lstr-small" else ""
        yield Notice(f"preset: {task.preset}, because {hours}{better}", warning=False)
    yield Notice(f"{n_videos} videos, {split.n_chunks} chunks, {len(split.labels.classes)} classes", warning=False)
    for last in train_model(task, folder, device, options.resume):
        yield last
    if last and last.step < last.steps:
        yield Notice(f"ended early: {config.patience} evaluations without a better {config.metric}.", warning=False)
    best = folder / "best.pt"
    held_out = any(video.subset in ("testing", "validation") for video in split.labels.videos.values())
    path = best if task.validation and best.exists() else folder / "checkpoint.pt"
    yield Finished(Trained(path, held_out, bool(split.folder.recipe)))


def read_task(options: TrainOptions) -> Generator[LabelFindings, None, Task]:
    """Read and check what is to be trained on what."""
    file = read_config(options.config) if options.config else {}
    if options.preset:
        # a wrong name is reported before anything is read
        preset_named(options.preset)
    source = str(options.labels)
    said, settings = split_settings(options.settings)
    before = file.get("store") or {}  # what the configuration states about features of other programs
    known = {name: str(before[name]) for name in ("rate", "offset", "name") if before.get(name)}
    data = read_dataset(
        options.features,
        source,
        (options.rgb, options.flow),
        options.dataset,
        lenient=True,
        skip_missing=options.skip_missing,
        stated=said.over(Stated(**known)),
    ).only(options.streams)
    if data.folder.recipe and said != NOTHING:
        raise RecipeError(
            f"{data.folder.path} has a recipe, so its features have 4 chunks per second.",
            "omit the settings features.NAME.",
        )
    subset, evaluates = options.subset or "training", settings.get("train.eval_every", "0") != "0"
    findings = data.check((subset, options.eval_subset) if evaluates else (subset,), options.skip_missing)
    if findings:
        yield LabelFindings(source, findings)
    stop_at_errors(findings, source)
    split = data.split(subset, options.skip_missing)
    n_chunks = CLOCK.chunks_for(split.clock.length(split.n_chunks))
    preset = file.get("preset") or options.preset or preset_for(n_chunks, settings)
    model, config = resolve(preset, settings, split.dims, file or None)
    validation = None
    if config.eval_every:
        validation = data.split(options.eval_subset, options.skip_missing, "--set eval_subset")
    return Task(split, model, config, validation, preset)


def train_model(task: Task, folder: Path, device: str = "cpu", resume: bool = False) -> Iterator[Step]:
    """Train the model of a task, yielding a Step after each log line.

    `folder` gets checkpoint.pt, resume.pt, config.json, metrics.jsonl, tensorboard/, and best.pt if there are
    validation videos. A stopped run resumes with `resume` from its last save, to the bit on a CPU. Raises
    CheckpointError if a run is in the way or had other settings, LstrError if loss or gradient is not finite or memory
    runs out.
    """
    config, settings, kept = task.config, task.settings(device), RunFolder(folder)
    if ranks.is_first():
        kept.begin(settings, resume)
    ranks.wait_for_all()
    with ExitStack() as stack:
        if config.deterministic:
            # before the first CUDA call; without it cuBLAS of torch before 2.15 fails in its first matrix product
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
            stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
            torch.use_deterministic_algorithms(True)
            # the benchmark chooses algorithms by their speed, which may be others each time
            torch.backends.cudnn.benchmark = False
        run, log = ModelRun(task, kept, settings, device), None
        if ranks.is_first():
            kept.remove_unsaved_log()
            log = partial(kept.log, events=stack.enter_context(closing(open_events(folder, run.position.step))))
        for event in run.train_steps(log):
            if isinstance(event, Step):
                yield event
    if ranks.is_first():
        check_exists(folder / kept.state)
