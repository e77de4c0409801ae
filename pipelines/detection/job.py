"""The detection job: any mix of recorded and live sources, in the order in which they can run."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import LstrError, StalledError, UnforeseenError
from lstr.extractors.devices import choose_device
from lstr.extractors.networks.runtimes.runtimes import choose_runtime
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_reader import LiveOptions
from lstr.files.atomic import check_writable
from lstr.labels.video_ids import check_match
from lstr.pipelines.annotations.label_file import with_plain_ids
from lstr.pipelines.detection.checkpoint import exported_path, load_checkpoint, processor_of
from lstr.pipelines.detection.events import Detected, Ended, Opened, SourceEvent
from lstr.pipelines.detection.files import NO_FILES, OutputOptions, dated, subset_of, truth_of
from lstr.pipelines.detection.networks import NetworkOptions, Networks
from lstr.pipelines.detection.paths import by_kind
from lstr.pipelines.detection.recorded import default_at_once
from lstr.pipelines.detection.session import Event, Session
from lstr.pipelines.detection.sink import MakeSink
from lstr.pipelines.detection.sources import ALL, Limits, Recorded, find_recorded, recorded_sources
from lstr.pipelines.detection.streams import SharedStreams
from lstr.pipelines.detection.warnings import warnings_of
from lstr.pipelines.failures import FAILED, FailureLog
from lstr.pipelines.pages.fonts import illegible_warning
from lstr.pipelines.pages.timeline_page import index_path, write_index
from lstr.pipelines.progress import Failed, Finished, Notice
from lstr.pipelines.thresholds.choice import ThresholdChoice, choose_thresholds, delay_of
from lstr.pipelines.weights.known import origins_of_checkpoint
from lstr.timeline import Thresholds

DetectEvent = Notice | SourceEvent | Finished[Detected]


@dataclass(frozen=True)
class DetectOptions:
    """How sources are detected on, and what is left of it."""

    checkpoint: Checkpoint | str | Path | None = None
    """A model file, a checkpoint, or one that is loaded; None is $LSTR_CHECKPOINT, else the default model."""
    names: Mapping[str, str | Path] = field(default_factory=dict)
    """Live sources beside the others, by the names that their files and lines get."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the model, for a published checkpoint, which does not say all: setting to value."""
    device: str | None = None
    """Where model and networks run; None is a GPU when there is one."""
    networks: NetworkOptions | Networks = NetworkOptions()
    """How the networks are made, or networks that are kept for other calls too."""
    streams: SharedStreams | None = None
    """Streams of the model that are kept for other calls too."""
    thresholds: ThresholdChoice = None
    limits: Limits = ALL
    live: LiveOptions = LiveOptions()
    on_gap: str = "keep"
    """What the model remembers after a live source was away: `keep` all, or `reset`."""
    output: OutputOptions = NO_FILES
    sinks: Sequence[MakeSink] = ()
    """Where the decisions on each source go beside that."""
    at_once: int | None = None
    """Videos that are decided at once, at most; None is what suits this machine. Their results come in their order."""
    keep_going: bool = True
    """Report a source that fails and go on with the others; else its error is raised."""


def detect_sources(
    sources: Iterable[str | Path | Recorded], options: DetectOptions = DetectOptions()
) -> Generator[DetectEvent, None, None]:
    """Detect on recorded sources in their order, then on all live ones at once; the last event is Finished(Detected).

    A source as for `lstr detect`: a video, a folder of videos, a feature folder, a camera, an address, or `-`; or a
    Recorded, which comes first. Each Notice comes once, unless it `repeats`. A KeyboardInterrupt while live sources run
    ends them: what came of them is reported, Finished too, and then it is raised. Where it falls into the body of a
    caller's loop, the caller throws it in (`generator.throw`).

    Raises the typed errors of `lstr.errors`: of what all sources need, of outputs that cannot
    be written, and of a live source that is the only one.
    """
    sources = list(sources)
    given = [source for source in sources if isinstance(source, Recorded)]
    paths, live = by_kind((source for source in sources if not isinstance(source, Recorded)), options.names)
    not_read: list[str] = []
    features, videos = find_recorded(paths, not_read.append)
    delay_of(options.thresholds)  # contradictions are named before the seconds that a checkpoint takes
    kept = options.networks if isinstance(options.networks, Networks) else None
    wanted = options.networks.options if isinstance(options.networks, Networks) else options.networks
    wanted = replace(wanted, device=wanted.device or options.device)
    if exported := exported_path(options.checkpoint):
        wanted = replace(wanted, device=processor_of(exported, wanted.device))
    choose_runtime(wanted.runtime, choose_device(wanted.device))
    if options.output.folder:
        check_writable(options.output.folder)
    loaded = options.checkpoint
    if not isinstance(loaded, Checkpoint):
        loaded = load_checkpoint(loaded, options.settings, options.device)
    recorded = [*given, *recorded_sources(features, videos, loaded, wanted.allow_mismatch)]
    if labels := options.output.labels:
        ids = {source.id for source in recorded} | {one.id for one in live}
        labels = with_plain_ids(labels, ids)
        check_match(labels.videos, ids)
        options = replace(options, output=replace(options.output, labels=labels))
    if options.output.has_pages:
        output = replace(options.output, origins=origins_of_checkpoint(loaded))
        if output.folder and len(recorded) > 1 and not live:  # a camera's index has a date, which nobody knows yet
            output = replace(output, index=index_path(output.folder, {source.id for source in recorded}))
        options = replace(options, output=output)
    names = {*videos, *(one.id for one in given), *(one.id for one in live)}
    several = len(names) > 1 or bool(features)
    log = FailureLog(options.output.folder, keeps_list=several and Path(FAILED).stem not in names)
    run = _Run(options, loaded, log)
    yield from (Notice(text, warning=False) for text in not_read)
    yield from run.notices(warnings_of(loaded))
    run.thresholds = choose_thresholds(loaded, options.thresholds)
    yield from run.notices_of_options()
    with nullcontext(kept) if kept else closing(Networks(loaded, wanted)) as shared:
        at_once = (options.at_once or default_at_once(wanted.device)) if len(videos) > 1 else 1
        yield from run.session(shared, at_once, recorded)
        yield from run.session(shared, len(live), live)
    yield Finished(run.result())
    if run.interrupt:
        raise run.interrupt


@dataclass
class _Run:
    """One job while it runs."""

    options: DetectOptions
    loaded: Checkpoint
    log: FailureLog
    thresholds: Thresholds | Mapping[str, Thresholds] = field(default_factory=Thresholds)
    timelines: dict[str, dict] = field(default_factory=dict)
    stalled: bool = False
    interrupt: KeyboardInterrupt | None = None
    """What ended the live sources, if that was one."""
    names: dict[str, str] = field(default_factory=dict)
    """By source, what the names of its files begin with."""
    has_dated: bool = False
    """Whether some of them have a date."""
    _noticed: set[str] = field(default_factory=set)

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
        if output.folder and {"png", "svg"} & {*output.formats}:
            import_module("matplotlib")  # which a small install lacks: said now, and not after hours
        if output.folder and {"mp4", "png"} & {*output.formats} and (text := illegible_warning(self.loaded.classes)):
            yield from self.notices([text])

    def session(self, networks: Networks, places: int, sources: Sequence[Recorded | Input]) -> Iterator[Event]:
        """All events of some sources; the failure of a live one that is alone is raised."""
        alone = sources[0] if len(sources) == 1 and isinstance(sources[0], Input) else None
        options = self.options
        session = Session(
            self.loaded,
            networks,
            places,
            thresholds=self.thresholds,
            on_gap=options.on_gap,
            limits=options.limits,
            live=options.live,
            output=options.output,
            sinks=options.sinks,
            log=self.log if options.keep_going else None,
            streams=options.streams,
        )
        with session:
            try:
                with closing(session.events()) as events:
                    for source in sources:
                        session.add(source)
                    yield from self._reported(events, alone)
            except KeyboardInterrupt as interrupt:  # how a camera is left
                if not any(isinstance(source, Input) for source in sources):
                    self.write_index()  # the pages that are there link it
                    raise
                self.interrupt = interrupt
                yield from self._reported(session.leave(), alone)

    def _reported(self, events: Iterator[Event], alone: Input | None) -> Iterator[Event]:
        """Events of a session, and what they bring with them; raises the failure of a live source that is `alone`."""
        for event in events:
            if isinstance(event, Notice) and not event.repeats:
                yield from self.notices([event.text])
                continue
            if isinstance(event, Opened):
                self.names[event.id] = event.file_name
                self.has_dated = self.has_dated or bool(event.dated)
                yield from self._without_pictures(event)
            elif isinstance(event, Ended):
                self.timelines[event.id] = event.timeline
            elif isinstance(event, Failed):
                self.stalled |= isinstance(event.error, StalledError)
                if alone:
                    _raise_only(event)
            yield event

    def _without_pictures(self, opened: Opened) -> Iterator[Notice]:
        output = self.options.output
        if output.folder and "mp4" in output.formats and not (opened.video or opened.refresh or self.timelines):
            yield from self.notices([f"{opened.origin} has no pictures to draw on, so there is no mp4 of it."])

    def result(self) -> Detected:
        """What came of all sources; the index over several pages is written."""
        self.log.finish(self.timelines)
        index, failures = self.write_index(), tuple(self.log.events)
        return Detected(self.timelines, failures, index, self.stalled, self.interrupt is not None)

    def write_index(self) -> Path | None:
        """Write the page over several pages; its path, None where there is none to write."""
        output, failures = self.options.output, self.log.events
        several = output.index or len(self.timelines) + len(failures) > 1
        if not (output.folder and output.has_pages and self.timelines and several):
            return None
        timelines = {self.names[source_id]: timeline for source_id, timeline in self.timelines.items()}
        truth = {self.names[source_id]: truth_of(output.labels, source_id) for source_id in self.timelines}
        subsets = {self.names[i]: subset for i in self.timelines if (subset := subset_of(output.labels, i))}
        reasons = [failure.reason for failure in failures]
        name = dated("index", output.folder) if self.has_dated else "index"
        path = output.index or index_path(output.folder, timelines, name)
        return write_index(output.folder, timelines, truth=truth, subsets=subsets, failed=reasons, path=path)


def _raise_only(failed: Failed) -> NoReturn:
    """Raise what ended the only live source."""
    if isinstance(failed.error, LstrError):
        raise failed.error
    raise UnforeseenError(failed.reason, failed.hint) from failed.error
