"""The finetuning job: train feature networks on labelled videos, with one process or with torchrun."""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from lstr.errors import CheckpointError, few
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import Algorithm, flow_workers
from lstr.extractors.networks.weights_file import is_weights_folder
from lstr.extractors.networks.weights_folder import WeightsFolder, open_weights
from lstr.extractors.presets import Preset, shape_of
from lstr.extractors.video.inputs import find_sources
from lstr.files.atomic import check_writable
from lstr.files.home import home
from lstr.files.remote import Place
from lstr.labels.check import check, stop_at_errors
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.label_files import read_label_files
from lstr.pipelines.annotations.videos import footage_of_files
from lstr.pipelines.failures import FAILED, LOGS, FailureLog
from lstr.pipelines.features.chunk_cache import DEFAULT_SIZE, CachedVideo, ChunkCache
from lstr.pipelines.features.extraction import Outcome
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice, Progress
from lstr.pipelines.training import ranks, training_videos
from lstr.pipelines.training.recogniser import RANDOM, settle
from lstr.pipelines.training.run import CONFIG, LOG, NETWORK_STATES, RunFolder, Step
from lstr.pipelines.training.training_videos import Filling, Pair
from lstr.settings import Positive, PositiveAmount, check_fields


@dataclass(frozen=True)
class VideoOptions:
    """Options of all jobs that train on labelled videos."""

    videos: Sequence[str]
    """Files, folders, patterns, URLs."""
    labels: str | Sequence[str]
    """Label files of any format, see `read_label_file`; if several files have a video, the last one counts."""
    output: str | Path
    """Folder for weights, or a model file; its parts are kept in a folder next to it."""
    init: str | None = None
    """Initial weights of all networks that they fit: a path, the name or recipe of fetched ones, or `random`."""
    cache: str | Path | None = None
    """The folder for frames and flow; None for the usual one."""
    cache_size: int = DEFAULT_SIZE
    """Maximum bytes of the cache."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By NAME for both networks, rgb.NAME or flow.NAME for one (`FinetuneConfig`)."""
    seconds: PositiveAmount | None = None
    """Maximum time; None without a limit."""
    algorithm: Algorithm | None = None
    """Algorithm of optical flow; None for the one in the recipe."""
    recipe: str | Preset | None = None
    """How features are made: a preset or its name, or a recipe file; None for the default of the job."""
    stream: str | None = None
    """`rgb`, `flow` or `both`; None for all streams of the recipe."""
    folds: int | None = None
    """Number of folds; a further network of each stream is trained without each. None for the default of the job."""
    at_once: Positive | None = None
    """Networks of a stream that are trained at once on a CPU; None for a number that suits job and machine."""
    device: str | None = None
    """`cpu` or `cuda`; None for the GPU if the machine has one."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of range."""
        check_fields(self)

    def read(self) -> Generator[Notice, None, tuple[dict[str, Place], Labels]]:
        """Return the videos by id, and their labels; yield a notice of files in folders that are not read."""
        not_read: list[str] = []
        found = find_sources(self.videos, notify=not_read.append)
        yield from (Notice(text, warning=False) for text in not_read)
        roots = [video for video in self.videos if Path(video).is_dir()]
        return found, read_label_files(self.label_files, roots, None, lenient=True, skip_missing=True, present=found)

    @property
    def label_files(self) -> list[str]:
        """Paths of the labels."""
        return [self.labels] if isinstance(self.labels, str) else list(self.labels)

    @property
    def labels_named(self) -> str:
        """The label files as part of a sentence."""
        return few(self.label_files)

    def check(
        self, labels: Labels, found: Mapping[str, Place], answered: Collection[str] = ()
    ) -> Iterator[LabelFindings]:
        """Yield what is odd in the labels of videos, except kinds of findings that the job answers itself.

        Raises LabelsError for errors.
        """
        footage = footage_of_files({name: found[name] for name in labels.videos if name in found})
        findings = [finding for finding in check(labels, footage=footage) if finding.kind not in answered]
        if findings:
            yield LabelFindings(self.labels_named, findings)
        stop_at_errors(findings, self.labels_named, self.label_files)


def report_skipped(*groups: tuple[Sequence[str], str, bool]) -> Iterator[Notice]:
    """Yield a notice about each group of videos (ids, why they are not used, whether to warn) that has some."""
    for ids, reason, warning in groups:
        if ids:
            yield Notice(f"{reason}: {few(ids)} ({len(ids)} in all).", warning=warning)


@dataclass(frozen=True)
class FinetuneOptions(VideoOptions):
    """Which networks to train on which videos, by default with the recipe `fast` and without folds.

    `lstr finetune` has an option or setting for each.
    """

    inits: Mapping[str, str] = field(default_factory=dict)
    """Initial weights of single networks, by stream."""
    subset: str = "training"
    eval_subset: str | None = None
    """The subset that chooses the epoch; None for `validation` if it exists, else one in five training videos."""
    resume: bool = False


@dataclass(frozen=True)
class Finetuned:
    """The result of a finetuning."""

    weights: WeightsFolder
    failed: Sequence[Failed] = ()  # videos that were skipped because they cannot be read
    n_videos: int = 0  # including those


Event = LabelFindings | Notice | Failed | Filling | Progress | Outcome | Step | Finished[Finetuned]


def finetune(
    options: FinetuneOptions, spare: bool = True, later: float = 0.0, planned: Mapping[str, float] | None = None
) -> Generator[Event, None, None]:
    """Train the networks, or resume a training. With torchrun, only rank 0 yields events and writes files.

    With a time limit, which includes the computation of chunks, a network stops when its share of the time has passed,
    but not before the end of its first epoch. Close the generator to stop; finished parts are kept.

    Args:
        options: What to train.
        spare: Whether one in five of many training videos is held out to choose the epoch, if no others do.
        later: Seconds of the work that follows by a plan, for which a part of the time limit is kept.
        planned: Seconds of a network by stream, by a plan.

    Yields LabelFindings and Notices; Failed for each unreadable video; Filling, then Progress by video id and an
    Outcome for each video with cached chunks, and an empty Filling; Progress by network after each step, a Step after
    each epoch; and Finished with Finetuned.

    Raises:
        CheckpointError, ConfigError, LabelsError, OutputError, RecipeError, VideoError, WeightsError: inputs and
            options cannot be used, or do not fit together.
    """
    with ranks.join_ranks(choose_device(options.device)) as device:
        with closing(run_job(options, device, spare, later, planned or {})) as events:
            for event in events:
                if ranks.is_first():
                    yield event


def run_job(
    options: FinetuneOptions, device: str, spare: bool, later: float, planned: Mapping[str, float]
) -> Generator[Event, None, None]:
    """Train the networks on this process; see `finetune`."""
    from lstr.pipelines.training.network_run import TimeLimit, Training
    from lstr.pipelines.training.networks import train_networks

    started, output = perf_counter(), Path(options.output)
    run = RunFolder(output)
    run.check_free(options.resume)
    if is_weights_folder(output):
        text = f"{output} is finished; to train its networks further, use `--init {output}` and another folder."
        yield Notice(text, warning=False)
        yield Finished(Finetuned(open_weights(output)))
        return
    if not run.has_state():
        # a kill before the first state leaves an empty folder of states
        own = (CONFIG, LOG, FAILED, LOGS, NETWORK_STATES)
        if output.is_dir() and any(path.name not in own for path in output.iterdir()):
            raise CheckpointError(f"{output} is not empty and contains no run.", "choose a new folder with -o.")
        check_writable(output)  # before hours of flow
        if options.resume:
            yield Notice(f"{output} contains no run to resume: a new one starts.", warning=False)
    features = options.recipe or "fast", options.stream or "both", options.algorithm
    networks = settle(features, options.settings, options.init, device, options.inits)
    found, labels = yield from options.read()
    yield from options.check(labels, found)
    training, validation, unused, absent = training_videos.parts_of(labels, found, options.subset, options.eval_subset)
    others = [i for i in unused if i in labels.videos]  # kept unseen on purpose, so there is no warning
    subsets = " and ".join(sorted({labels.videos[i].subset for i in others}))
    yield from report_skipped(
        (absent, f"labelled in {options.labels_named}, but not among the videos", True),
        ([i for i in unused if i not in labels.videos], f"skipped, without a label in {options.labels_named}", True),
        (others, f"not used, because their subset is {subsets}", False),
    )
    used = {i: found[i] for i in (*training, *validation)}

    def pairs_of(present: Mapping[str, str]) -> tuple[list[Pair], dict[str, int]]:
        """Return the pairs and the folds; present: SHA-256 of the readable videos by id."""
        ids = [i for i in training if i in present]
        training_videos.check_labels(labels, ids, options.labels_named)
        if options.folds:
            training_videos.check_blind(networks.initial, present)
        chosen_by = [i for i in validation if i in present]
        return training_videos.make_pairs(labels, ids, chosen_by, options.folds or 0, present, spare)

    folder = Path(options.cache) if options.cache else home() / "chunks"
    cache = ChunkCache(folder, training_videos.chunks_of(networks.preset), options.cache_size)
    failed = FailureLog(output)
    cached: dict[str, CachedVideo] = {}
    if ranks.is_first():
        yield Notice(f"reading the headers of {len(used)} videos", warning=False)
        sound = yield from training_videos.look_at(used, cache, failed)
        pairs_of({i: video.sha256 for i, video in sound.items()})  # raises its errors before hours of flow
        with flow_workers(networks.preset.algorithm, device=device) as workers:
            yield from map(Notice, workers.warnings if workers else ())
            cached = yield from training_videos.fill(sound, cache, workers, failed)
        failed.finish(used)
    known = ranks.from_first(lambda: {i: video.record["sha256"] for i, video in cached.items()})
    if not ranks.is_first():
        cached = training_videos.find_cached(cache, known)
    shown = [cached[i].chunks.shape for i in training if i in cached]
    networks = networks.seeing(shape_of((width, height) for *_, height, width in shown))
    pairs, folds = pairs_of(known)
    whole = pairs[0]
    if len(whole.training) == 1:
        yield Notice(f"the only training video is {whole.training[0]!r}: the networks may work on that video only.")
    counts = f"{len(whole.training)} training videos, {len(whole.validation)} validation videos"
    folds_text = f", {len(pairs) - 1} folds" if len(pairs) > 1 else ""
    yield Notice(f"{counts}, {len(labels.classes)} classes{folds_text}", warning=False)
    for stream, config in networks.configs.items():
        begins = networks.initial[stream]
        origin = f"the {'RGB ' if begins.crossed else ''}weights of {begins.path}" if begins.path else "random weights"
        images = f"images of {' × '.join(map(str, config.input_size))} pixels, in {config.precision}"
        yield Notice(f"{stream}: up to {config.epochs} epochs from {origin}, {images}", warning=False)
        if options.init not in (None, RANDOM) and not begins.path:
            yield Notice(f"{options.init} does not fit the {stream} network, which starts from random weights.")
    for pair in pairs:
        if missing := training_videos.unlearnt(pair.training, labels):
            where, what = f"without fold {pair.fold} " if pair.fold else "", few(missing)
            yield Notice(f'{where}no training video shows {what}: add videos of them, or leave them out of "classes".')
    limit = None
    if options.seconds is not None:
        limit = TimeLimit(options.seconds - (perf_counter() - started), later, planned)
    job = Training(networks, labels, cached, pairs, folds, limit)
    for event in train_networks(job, output, device, options.resume, options.at_once):
        yield Finished(Finetuned(event.result, failed.events, len(used))) if isinstance(event, Finished) else event
