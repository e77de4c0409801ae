"""The detection job: any mix of recorded and live sources, in the order in which they can run."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from lstr.checkpoints.checkpoint import Checkpoint
from lstr.extractors.devices import choose_device
from lstr.extractors.errors import StalledError
from lstr.extractors.networks.runtimes.runtimes import choose_runtime
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_reader import LiveOptions
from lstr.pipelines.detection.checkpoint import load_checkpoint, warnings_of, warnings_of_source
from lstr.pipelines.detection.events import Detected, SourceEvent
from lstr.pipelines.detection.live import ChainOptions, LiveChain, run_live
from lstr.pipelines.detection.live_source import open_live
from lstr.pipelines.detection.paths import by_kind
from lstr.pipelines.detection.recorded import Deciding, default_at_once, runs_of
from lstr.pipelines.detection.sources import (
    ALL,
    Limits,
    NetworkOptions,
    Recorded,
    Unreadable,
    find_recorded,
    open_networks,
    open_recorded,
)
from lstr.pipelines.detection.writer import NO_FILES, OutputOptions, truth_of
from lstr.pipelines.failures import FAILED, FailureLog, failure_of
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.progress import Finished, Notice
from lstr.pipelines.reports.fonts import illegible_warning
from lstr.pipelines.reports.index_page import write_index
from lstr.pipelines.thresholds.choice import ThresholdChoice, choose_thresholds, delay_of
from lstr.timeline import Thresholds

DetectEvent = Notice | SourceEvent | Finished[Detected]


@dataclass(frozen=True)
class DetectOptions:
    """How sources are detected on, and what is left of it."""

    checkpoint: Checkpoint | str | Path | None = None
    """A model file, a checkpoint, or one that is loaded; None is $LSTR_CHECKPOINT, else the default model."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the model, for a published checkpoint, which does not say all: LSTRConfig field to value."""
    device: str | None = None
    """Of model and networks; None is a GPU when there is one."""
    model_precision: str = "float32"
    """Of the model's linear layers: float32 or bf16."""
    networks: NetworkOptions = NetworkOptions()
    thresholds: ThresholdChoice = None
    limits: Limits = ALL
    live: LiveOptions = LiveOptions()
    on_gap: str = "keep"
    """What the model remembers after a live source was away: `keep` all, or `reset`."""
    output: OutputOptions = NO_FILES
    at_once: int | None = None
    """Videos that are decided at once, at most; None is what suits this machine. Their results come in their order."""
    keep_going: bool = True
    """Report a source that fails and go on with the others; else its error is raised."""


def detect_sources(
    sources: Iterable[str | Path], options: DetectOptions = DetectOptions()
) -> Generator[DetectEvent, None, None]:
    """Detect on recorded sources in their order, then on all live ones at once; the last event is Finished(Detected).

    A source as for `lstr detect`: a video, a folder of videos, a feature folder, a camera, an address, or `-`. Each
    Notice comes once. A KeyboardInterrupt that is thrown in while live sources run leaves after their files are
    written; where it falls into the body of a caller's loop, the caller throws it in (`generator.throw`).

    Raises the typed errors of `lstr.errors` and `extractors.errors`: of what all sources need, of outputs that cannot
    be written, and of a live source that is the only one.
    """
    paths, live = by_kind(sources)
    found = find_recorded(paths)
    delay_of(options.thresholds)  # contradictions are named before the seconds that a checkpoint takes
    choose_runtime(options.networks.runtime, choose_device(options.networks.device or options.device))
    if options.output.folder:
        check_writable(options.output.folder)
    checkpoint = options.checkpoint
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = load_checkpoint(checkpoint, options.settings, options.device)
    named = {*found.videos, *(one.id for one in live)}
    several = len(named) > 1 or bool(found.features)
    log = FailureLog(options.output.folder, keeps_list=several and Path(FAILED).stem not in named)
    run = _Run(options, checkpoint, log=log)
    yield from run.notices(warnings_of(checkpoint))
    run.thresholds = choose_thresholds(checkpoint, options.thresholds)
    yield from run.notices_of_options()
    yield from run.recorded(found)
    if live:
        yield from run.live(live)
    yield Finished(run.result())


@dataclass
class _Run:
    """One job while it runs."""

    options: DetectOptions
    loaded: Checkpoint
    thresholds: Thresholds | Mapping[str, Thresholds] = field(default_factory=Thresholds)
    timelines: dict[str, dict] = field(default_factory=dict)
    log: FailureLog = field(default_factory=lambda: FailureLog(None))
    stalled: bool = False
    _noticed: set[str] = field(default_factory=set)

    @property
    def networks(self) -> NetworkOptions:
        """With the job's device where they have none of their own."""
        networks = self.options.networks
        return replace(networks, device=networks.device or self.options.device)

    def notices(self, texts: Iterable[str]) -> Iterator[Notice]:
        """Warnings, each once."""
        for text in texts:
            if text not in self._noticed:
                self._noticed.add(text)
                yield Notice(text)

    def notices_of_options(self) -> Iterator[Notice]:
        """What the options bring with them."""
        late = delay_of(self.options.thresholds)
        if any(late.values()):
            yield Notice(
                f"Starts are reported {late['started']:g} s later, ends {late['ended']:g} s later.", warning=False
            )
        output = self.options.output
        if output.folder and {"mp4", "png"} & {*output.formats} and (text := illegible_warning(self.loaded.classes)):
            yield from self.notices([text])

    def recorded(self, found: Recorded) -> Iterator[Notice | SourceEvent]:
        """In their order, each to its end."""
        options, output = self.options, self.options.output
        deciding = Deciding(self.loaded, self.thresholds, options.model_precision)
        at_once = (options.at_once or default_at_once(self.networks.device)) if len(found.videos) > 1 else 1
        with (
            ExitStack() as holding,
            closing(open_recorded(found, self.loaded, self.networks, options.limits, holding)) as opened,
            closing(runs_of(opened, deciding, at_once)) as runs,
        ):
            for run in runs:
                of = run if isinstance(run, Unreadable) else run.source
                try:
                    if isinstance(run, Unreadable):
                        raise run.error
                    source = run.source
                    yield from self.notices(source.warnings)
                    if output.folder and "mp4" in output.formats and source.video is None and not self.timelines:
                        text = f"{source.origin} has no pictures to draw on, so there is no mp4 of it."
                        yield from self.notices([text])
                    self.timelines[source.id] = yield from run.run(output)
                except Exception as error:
                    failure = failure_of(error, of.origin)
                    if not options.keep_going:
                        raise
                    yield self.log.add(of.id, of.origin, failure)

    def live(self, inputs: list[Input]) -> Iterator[Notice | SourceEvent]:
        """All at once, until they end; what they need is open no longer than they."""
        options, limits = self.options, self.options.limits
        chain_options = ChainOptions(options.model_precision, options.on_gap, limits.max_chunks)
        with (
            open_networks(self.loaded, self.networks) as (twostream, workers, warnings),
            open_live(
                inputs, self.loaded, twostream.recipe.long_side, options.live, limits, self.thresholds
            ) as sources,
            LiveChain(sources, self.loaded, twostream, workers, chain_options) as chain,
        ):
            known = (text for source in sources for text in warnings_of_source(self.loaded, source.id))
            warnings = [*warnings, *dict.fromkeys(known)]
            yield from self.notices(warnings)
            warnings = [*warnings_of(self.loaded), *warnings]
            log = self.log if options.keep_going else None
            self.timelines |= yield from run_live(chain, options.output, warnings, log)
            self.stalled = any(isinstance(source.error, StalledError) for source in sources)

    def result(self) -> Detected:
        """What came of all sources; the index over several pages is written."""
        output, index, failures = self.options.output, None, self.log.events
        self.log.finish(self.timelines)
        several = len(self.timelines) + len(failures) > 1
        if output.folder and output.has_pages and self.timelines and several:
            truth = {source_id: truth_of(output.labels, source_id) for source_id in self.timelines}
            reasons = [failure.reason for failure in failures]
            index = write_index(output.folder, self.timelines, truth=truth, failed=reasons)
        return Detected(self.timelines, tuple(failures), index, self.stalled)
