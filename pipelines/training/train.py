"""The job of training: feature folders and labels to a checkpoint, on one process or on those that torchrun started."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK
from lstr.errors import ConfigError, RecipeError
from lstr.extractors.devices import choose_device
from lstr.extractors.streams import STREAMS
from lstr.labels.check import stop_at_errors
from lstr.pipelines.features.compatibility import seen_in, seen_phrase
from lstr.pipelines.features.dataset import read_dataset
from lstr.pipelines.features.foreign import NOTHING, Stated, split_settings
from lstr.pipelines.progress import Finished, LabelFindings, Notice
from lstr.pipelines.provenance import make_reproducible
from lstr.pipelines.training.config import TrainConfig, preset_for, preset_named, read_config, resolve
from lstr.pipelines.training.model_run import Task, train_model
from lstr.pipelines.training.ranks import Ranks, join_ranks
from lstr.pipelines.training.run_folder import RunFolder, Step, draw_curves
from lstr.settings import Count, check_fields, override

HELD_OUT = ("testing", "validation")
RNN_IS_BETTER = (
    "--preset rnn-small did better on two small sets (mAP 0.67 against 0.59 on UT-Interaction, 0.93 against 0.92 on "
    "UR Fall)"
)


@dataclass(frozen=True)
class TrainOptions:
    """What to train on what; `lstr train` has an option for each."""

    features: Sequence[str | Path]
    """Feature folders."""
    labels: str | Path
    """Labels of any form, see `read_label_file`."""
    output: str | Path
    """The folder of the run."""
    preset: str | None = None
    """None for the one that suits the amount of training video."""
    config: str | Path | None = None
    """Settings of another run: its config.json, whose preset counts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By `model.NAME` and `train.NAME`, on top of those of preset and config; `features.NAME` says of features of other
    people what they do not say themselves (`lstr.pipelines.features.foreign.Stated`)."""
    subset: str = "training"
    dataset: str | None = None
    """Which data set of a data_info.json."""
    rgb: str | None = None
    """Folder of the RGB features within each of `features`; `flow` alike."""
    flow: str | None = None
    streams: Sequence[str] = ()
    """Streams that the model sees; none for all that the features have."""
    skip_missing: bool = False
    """Leave out labelled videos without features."""
    max_steps: int | None = None
    eval_every: int | None = None
    """Epochs between two evaluations, which choose best.pt."""
    eval_subset: str = "validation"
    patience: int | None = None
    seed: int | None = None
    deterministic: bool = False
    readers: Count | None = None
    """Threads that read features ahead; None for as many as the machine has cores, up to four."""
    resume: bool = False
    device: str | None = None
    """`cpu` or `cuda`; None for the GPU where the machine has one."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of readers that is none, and for a stream that features do not have."""
        check_fields(self)
        if wrong := [stream for stream in self.streams if stream not in STREAMS]:
            raise ConfigError(f"There is no stream {wrong[0]!r}.", f"choose among {', '.join(STREAMS)}.")

    def changes(self) -> dict[str, str]:
        """All settings that are set here, by `model.NAME` and `train.NAME`."""
        named = {name: getattr(self, name) for name in ("max_steps", "eval_every", "patience", "seed")}
        changes = {f"train.{name}": str(value) for name, value in named.items() if value is not None}
        return (
            changes | split_settings(self.settings)[1] | ({"train.deterministic": "true"} if self.deterministic else {})
        )

    @property
    def repeats(self) -> bool:
        """Whether the run is to be deterministic, by whatever way that is set. Raises ConfigError for a wrong file."""
        file = read_config(self.config)["train"] if self.config else {}
        wanted = str(self.changes().get("train.deterministic", file.get("deterministic", False)))
        return override(TrainConfig(), {"deterministic": wanted}).deterministic


@dataclass(frozen=True)
class Started:
    """The training videos of the run."""

    n_videos: int
    n_chunks: int
    n_classes: int


@dataclass(frozen=True)
class Trained:
    """The files of a finished run."""

    checkpoint: Path
    """best.pt where the run chose one, else checkpoint.pt"""
    curves: Path
    held_out: bool = False
    """Whether the labels have videos that `lstr evaluate` scores"""


Event = LabelFindings | Notice | Started | Step | Finished[Trained]


def train(options: TrainOptions) -> Iterator[Event]:
    """Train a model, or resume a run. Started by torchrun, rank 0 alone yields events.

    Yields LabelFindings, Notices and Started before the first step, a Step after each logged interval, last Finished.
    Raises LabelsError, RecipeError or ConfigError for what does not fit together, and whatever `train_model` raises.
    """
    if options.repeats:
        make_reproducible()  # before anything of CUDA begins
    with join_ranks(choose_device(options.device)) as (ranks, device):
        yield from ranks.only_first(_events(options, ranks, device))


def planned_settings(options: TrainOptions) -> Iterator[LabelFindings | Finished[dict]]:
    """All settings of the run that `train` would start, in Finished, as its config.json would hold them."""
    with join_ranks(choose_device(options.device)) as (ranks, device):
        task = yield from _task(options)
        if ranks.first:
            yield Finished(task.settings(device, ranks))


def _events(options: TrainOptions, ranks: Ranks, device: str) -> Iterator[Event]:
    task = yield from _task(options)
    yield from _notices(task, options.eval_subset)
    split, folder, step = task.split, Path(options.output), None
    if options.resume and not RunFolder(folder).is_begun():
        yield Notice(f"{folder} holds no run to resume: a new one starts.", warning=False)
    if not options.preset and not options.config:
        hours, text = split.clock.length(split.n_chunks) / 3600, ""
        if task.preset == "lstr-small":
            text = f"; {RNN_IS_BETTER}"
        yield Notice(
            f"preset: {task.preset}, because there are {hours:.1f} hours of training video{text}", warning=False
        )
    yield Started(len(split.videos), split.n_chunks, len(split.labels.classes))
    for step in train_model(task, folder, device, options.resume, options.readers, ranks):
        yield step
    if step and step.step < step.steps:
        config = task.config
        yield Notice(f"ended early: {config.patience} evaluations without a better {config.metric}.", warning=False)
    if ranks.first:
        draw_curves(folder)
    best = folder / "best.pt"
    checkpoint = best if task.validation and best.exists() else folder / "checkpoint.pt"
    held_out = any(video.subset in HELD_OUT for video in split.labels.videos.values())
    yield Finished(Trained(checkpoint, folder / "curves.png", held_out))


def _task(options: TrainOptions) -> Generator[LabelFindings, None, Task]:
    """Read and check what is to be trained on what."""
    file = read_config(options.config) if options.config else None
    if options.preset:
        preset_named(options.preset)  # a wrong name is told before anything is read
    source = str(options.labels)
    data = read_dataset(
        options.features,
        source,
        (options.rgb, options.flow),
        options.dataset,
        lenient=True,
        skip_missing=options.skip_missing,
        stated=_stated(options, file),
    ).only(options.streams)
    if data.folder.recipe and split_settings(options.settings)[0] != NOTHING:
        raise RecipeError(
            f"{data.folder.path} says itself how its features were made, 4 a second.", "leave out features.rate."
        )
    subsets = (options.subset, options.eval_subset) if options.eval_every else (options.subset,)
    findings = data.check(subsets, options.skip_missing)
    if findings:
        yield LabelFindings(source, findings)
    stop_at_errors(findings, source)
    split = data.split(options.subset, options.skip_missing)
    seconds, (_, settings) = split.clock.length(split.n_chunks), split_settings(options.settings)
    preset = (file["preset"] if file else None) or options.preset or preset_for(CLOCK.covering(seconds), settings)
    model, config = resolve(preset, options.changes(), split.dims, file)
    held_out = (options.eval_subset, options.skip_missing, "--eval-subset")
    validation = data.split(*held_out) if config.eval_every else None
    return Task(split, model, config, validation, preset)


def _stated(options: TrainOptions, file: Mapping[str, Any] | None) -> Stated:
    """Return what settings, or the run of a config file, say about features of other people. Raises ConfigError."""
    before = (file or {}).get("store") or {}
    known = {name: str(before[name]) for name in ("rate", "offset", "name") if before.get(name)}
    return split_settings(options.settings)[0].over(Stated(**known))


def _notices(task: Task, eval_subset: str) -> Iterator[Notice]:
    """What a person should know before the first step."""
    split, validation = task.split, task.validation
    recipe = split.folder.recipe
    if recipe and recipe.is_random:
        yield Notice(f"the features come from random {recipe.random_streams} networks.")
    seen = seen_in(split, task.model)
    if seen:
        yield Notice(
            f"the {seen_phrase(seen, len(split.videos), 'training videos')}: no new video has features as good; with "
            "`lstr finetune --folds` each video gets those of networks that have not seen it."
        )
    seen = seen_in(validation, task.model) if validation else {}
    if validation and seen:
        yield Notice(
            f"the {seen_phrase(seen, len(validation.videos), f'{eval_subset} videos')}: "
            "best.pt and train.patience go by scores that new videos would not have."
        )
    if task.config.teacher:
        sees = f"sees {task.config.teacher} chunks of the future"
        yield Notice(f"first a teacher is trained, which {sees}; then the model, which sees none.", warning=False)
    if split.clock != CLOCK:
        model, rate, lasts = task.model, float(split.clock.rate), split.clock.length
        text = f"work memory of {model.work_length} chunks is {lasts(model.work_length):.1f} s at {rate:.4g} a second"
        long = f", long memory of {model.long_length} is {lasts(model.long_length):.1f} s" if model.n_long else ""
        yield Notice(f"{text}{long}.", warning=False)
    if not all(split.dims):
        stream = "rgb" if split.dims[0] else "flow"
        yield Notice(f"the features are of one stream, {stream}: the model takes no other.", warning=False)
