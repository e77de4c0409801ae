"""The job of training: feature folders and labels to a checkpoint, on one process or on those that torchrun started."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    """What to train on what; `lstr train` has an option or setting for each."""

    features: Sequence[str | Path]
    """Feature folders."""
    labels: str | Path
    """Labels of any form, see `read_label_file`."""
    output: str | Path
    """The folder of the run."""
    preset: str | None = None
    """None for a preset that suits the amount of training video."""
    config: str | Path | None = None
    """The config.json of another run, whose settings and preset count."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By `model.NAME` and `train.NAME`, in addition to preset and config; `features.NAME` describes features of other
    people (`lstr.pipelines.features.foreign.Stated`)."""
    subset: str = "training"
    dataset: str | None = None
    """Which data set of a data_info.json."""
    rgb: str | None = None
    """Folder of the RGB features within each of `features`; `flow` alike."""
    flow: str | None = None
    streams: Sequence[str] = ()
    """Streams that the model sees; empty for all that the features have."""
    skip_missing: bool = False
    """Skip labelled videos without features."""
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
    """`cpu` or `cuda`; None for the GPU if the machine has one."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of range."""
        check_fields(self)
        if wrong := [stream for stream in self.streams if stream not in STREAMS]:
            raise ConfigError(f"There is no stream {wrong[0]!r}.", f"choose among {', '.join(STREAMS)}.")

    def changes(self) -> dict[str, str]:
        """Return all settings that are set here, by `model.NAME` and `train.NAME`."""
        named = {name: getattr(self, name) for name in ("max_steps", "eval_every", "patience", "seed")}
        changes = {f"train.{name}": str(value) for name, value in named.items() if value is not None}
        return (
            changes | split_settings(self.settings)[1] | ({"train.deterministic": "true"} if self.deterministic else {})
        )

    @property
    def repeats(self) -> bool:
        """Whether the run must be deterministic, by options, settings or config. Raises ConfigError."""
        file = read_config(self.config)["train"] if self.config else {}
        wanted = str(self.changes().get("train.deterministic", file.get("deterministic", False)))
        return override(TrainConfig(), {"deterministic": wanted}).deterministic


@dataclass(frozen=True)
class Trained:
    """The files of a finished run."""

    checkpoint: Path
    """best.pt if the run chose one, else checkpoint.pt"""
    curves: Path
    held_out: bool = False
    """Whether the labels have videos that `lstr evaluate` scores"""


Event = LabelFindings | Notice | Step | Finished[Trained]


def train(options: TrainOptions) -> Iterator[Event]:
    """Train a model, or resume a run. Started by torchrun, rank 0 alone yields events.

    Yields LabelFindings and Notices before the first step, a Step after each log line, last Finished. Raises
    LabelsError, RecipeError or ConfigError if inputs and options do not fit together, and as `train_model`.
    """
    if options.repeats:
        make_reproducible()  # before anything of CUDA begins
    with join_ranks(choose_device(options.device)) as (ranks, device):
        yield from ranks.only_first(_events(options, ranks, device))


def planned_settings(options: TrainOptions) -> Iterator[LabelFindings | Finished[dict]]:
    """Yield, in Finished, all settings of the run that `train` would start, as its config.json would hold them."""
    with join_ranks(choose_device(options.device)) as (ranks, device):
        task = yield from _task(options)
        if ranks.first:
            yield Finished(task.settings(device, ranks))


def _events(options: TrainOptions, ranks: Ranks, device: str) -> Iterator[Event]:
    task = yield from _task(options)
    split, config, folder = task.split, task.config, Path(options.output)
    recipe, last, clock, n_videos = split.folder.recipe, None, split.clock, len(split.videos)
    if recipe and recipe.is_random:
        yield Notice(f"the features come from random {recipe.random_streams} networks.")
    if seen := seen_in(split, task.model):
        yield Notice(
            f"the {seen_phrase(seen, n_videos, 'training videos')}: no new video has features as good; with "
            "`lstr finetune --folds` each video gets those of networks that have not seen it."
        )
    if task.validation and (seen := seen_in(task.validation, task.model)):
        yield Notice(
            f"the {seen_phrase(seen, len(task.validation.videos), f'{options.eval_subset} videos')}: "
            "best.pt and train.patience go by scores that new videos would not have."
        )
    if config.teacher:
        sees = f"sees {config.teacher} chunks of the future"
        yield Notice(f"first a teacher is trained, which {sees}; then the model, which sees none.", warning=False)
    if clock != CLOCK:
        work, long, lasts = task.model.work_length, task.model.long_length, clock.length
        text = f"work memory of {work} chunks is {lasts(work):.1f} s at {float(clock.rate):.4g} a second"
        text += f", long memory of {long} is {lasts(long):.1f} s" if task.model.n_long else ""
        yield Notice(f"{text}.", warning=False)
    if not all(split.dims):
        stream = "rgb" if split.dims[0] else "flow"
        yield Notice(f"the features are of one stream, {stream}: the model takes no other.", warning=False)
    if options.resume and not RunFolder(folder).is_begun():
        yield Notice(f"{folder} holds no run to resume: a new one starts.", warning=False)
    if not options.preset and not options.config:
        hours = f"there are {clock.length(split.n_chunks) / 3600:.1f} hours of training video"
        better = f"; {RNN_IS_BETTER}" if task.preset == "lstr-small" else ""
        yield Notice(f"preset: {task.preset}, because {hours}{better}", warning=False)
    yield Notice(f"{n_videos} videos, {split.n_chunks} chunks, {len(split.labels.classes)} classes", warning=False)
    for last in train_model(task, folder, device, options.resume, options.readers, ranks):
        yield last
    if last and last.step < last.steps:
        yield Notice(f"ended early: {config.patience} evaluations without a better {config.metric}.", warning=False)
    if ranks.first:
        draw_curves(folder)
    best = folder / "best.pt"
    checkpoint = best if task.validation and best.exists() else folder / "checkpoint.pt"
    held_out = any(video.subset in HELD_OUT for video in split.labels.videos.values())
    yield Finished(Trained(checkpoint, folder / "curves.png", held_out))


def _task(options: TrainOptions) -> Generator[LabelFindings, None, Task]:
    """Read and check what is to be trained on what."""
    file = read_config(options.config) if options.config else {}
    if options.preset:
        preset_named(options.preset)  # a wrong name is reported before anything is read
    source = str(options.labels)
    said, settings = split_settings(options.settings)
    before = file.get("store") or {}  # what the run of the config said of features of other people
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
            f"{data.folder.path} says itself how its features were made, 4 a second.", "leave out features.rate."
        )
    subsets = (options.subset, options.eval_subset) if options.eval_every else (options.subset,)
    findings = data.check(subsets, options.skip_missing)
    if findings:
        yield LabelFindings(source, findings)
    stop_at_errors(findings, source)
    split = data.split(options.subset, options.skip_missing)
    n_chunks = CLOCK.covering(split.clock.length(split.n_chunks))
    preset = file.get("preset") or options.preset or preset_for(n_chunks, settings)
    model, config = resolve(preset, options.changes(), split.dims, file or None)
    held_out = (options.eval_subset, options.skip_missing, "--eval-subset")
    validation = data.split(*held_out) if config.eval_every else None
    return Task(split, model, config, validation, preset)
