"""The detection job: any mix of recorded and live sources, to events, files and decisions."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lstr.errors import LstrError, OutputError, StalledError, UnforeseenError
from lstr.extractors.devices import GPU_READERS, choose_device
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.runtime import choose_runtime
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.files.atomic import check_writable
from lstr.labels.label_set import Labels
from lstr.labels.segment import Segment
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Ended, MakeSink, Opened, SourceEvent
from lstr.pipelines.detection.model import Networks, device_of, load_checkpoint, warnings_of
from lstr.pipelines.detection.options import (
    ALL,
    NO_FILES,
    Limits,
    NetworkOptions,
    OutputOptions,
    ThresholdChoice,
    by_kind,
    choose_thresholds,
    is_values,
)
from lstr.pipelines.detection.outputs import dated, truth_of
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import Source, find_recorded, recorded_sources
from lstr.pipelines.failures import FAILED, FailureLog
from lstr.pipelines.progress import Failed, Finished, Notice
from lstr.timeline import Thresholds, changed

# Default maximum of videos processed at once, because each keeps some tens of chunks in memory.
MAX_AT_ONCE = 4


@dataclass(frozen=True)
class Detected:
    """The result of all sources."""

    timelines: dict[str, dict]
    """Timelines by source, in the order in which sources ended."""
    failures: tuple[Failed, ...] = ()
    index: Path | None = None
    """The page that links the pages of several sources."""
    stalled: bool = False
    """Whether a live source failed because it sent no frame for too long."""
    left: bool = False
    """Whether an interrupt ended the live sources."""
    comparison: str = ""
    """How many labelled actions were found, in a sentence; empty without labels."""


DetectEvent = SourceEvent | Finished[Detected]


@dataclass(frozen=True)
class DetectOptions:
    """How to detect on sources, and where the results go."""

    checkpoint: Checkpoint | str | Path | None = None
    """A model file or checkpoint, or one that is loaded; None for $LSTR_CHECKPOINT, else the default model."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Model settings that a published checkpoint does not state: setting to value."""
    networks: NetworkOptions | Networks = NetworkOptions()
    """How to build the networks, or networks that other calls use too."""
    thresholds: ThresholdChoice = None
    limits: Limits = ALL
    live: LiveOptions = LiveOptions()
    output: OutputOptions = NO_FILES
    sinks: Sequence[MakeSink] = ()
    """More sinks for the decisions on each source."""
    keep_going: bool = True
    """Report a source that fails and continue with the others; otherwise raise its error."""


def detect_sources(
    sources: Iterable[str | Path | Source | Input], options: DetectOptions
) -> Generator[DetectEvent, None, None]:
    """Detect on recorded sources in order, then on all live sources at once; the last event is Finished(Detected).

    A source is as for `lstr detect` (a video, a folder of videos, a feature folder, a camera, a URL, or `-`), the
    Input of a live source, or a Source, which comes first. Each Notice comes once, unless it `repeats`. A
    KeyboardInterrupt ends live sources: their results and Finished are still yielded, then it is raised. If the
    caller's loop body is interrupted, the caller passes the interrupt on with `generator.throw`.

    Raises the typed errors of `lstr.errors`: for what all sources need, for outputs that cannot
    be written, and for a live source that is the only one.
    """
    sources = list(sources)
    opened = [source for source in sources if isinstance(source, Source)]
    paths, live = by_kind(source for source in sources if not isinstance(source, Source | Input))
    live += [source for source in sources if isinstance(source, Input)]
    skipped: list[str] = []
    features, videos = find_recorded(paths, skipped.append)
    rules = options.thresholds
    if isinstance(rules, Mapping) and is_values(rules):
        rules = changed({}, rules)  # raises for contradictions before the seconds that loading takes
    delay = rules.delays() if isinstance(rules, Thresholds) else {}
    shared = options.networks if isinstance(options.networks, Networks) else None
    wanted = options.networks.options if isinstance(options.networks, Networks) else options.networks
    wanted = replace(wanted, device=device_of(options.checkpoint, wanted.device))
    choose_runtime(wanted.runtime, device := choose_device(wanted.device))
    output = options.output
    if output.folder:
        check_writable(output.folder)
    loaded = options.checkpoint
    if not isinstance(loaded, Checkpoint):
        loaded = load_checkpoint(loaded, options.settings, wanted.device)
    recorded = [*opened, *recorded_sources(features, videos, loaded, wanted.allow_mismatch)]
    if output.labels:
        from lstr.labels.video_ids import check_match
        from lstr.pipelines.annotations.label_files import with_plain_ids  # imports every format of labels

        ids = {source.id for source in recorded} | {address.id for address in live}
        labels = with_plain_ids(output.labels, ids)
        check_match(labels.videos, ids)
        output = replace(output, labels=labels)
    if output.folder and len(recorded) > 1:
        from lstr.pipelines.annotations.format import format_named

        suffixes = [format_named(name).suffix for name in output.formats]
        files = Counter(f"{source.id}{suffix}" for source in recorded for suffix in suffixes)
        if twice := next((file for file, count in files.items() if count > 1), None):
            raise OutputError(f"Two sources would write {twice}.", "rename one of them, or leave out a format of -f.")
    # the index of cameras has a date, unknown before the end
    index = None
    if output.has_pages and output.folder and len(recorded) > 1 and not live:
        from lstr.pipelines.pages.page import index_path

        index = index_path(output.folder, {source.id for source in recorded})
    names = {*videos, *(source.id for source in opened), *(address.id for address in live)}
    several = len(names) > 1 or bool(features)
    log = FailureLog(output.folder, keeps_list=several and Path(FAILED).stem not in names)
    run = _Run(replace(options, output=output), loaded, log, index)
    yield from (Notice(text, warning=False) for text in skipped)
    yield from run.new_notices(warnings_of(loaded))
    run.thresholds = choose_thresholds(loaded, options.thresholds)
    if any(delay.values()):
        text = f"Starts are reported {delay['started']:g} s later, ends {delay['ended']:g} s later."
        yield Notice(text, warning=False)
    if output.folder and {"png", "svg"} & {*output.formats}:
        import_module("matplotlib")  # missing in a small install, which must not show after hours
    if output.folder and {"mp4", "png"} & {*output.formats}:
        from lstr.pipelines.pages.overlay import illegible_warning

        if text := illegible_warning(loaded.classes):
            yield from run.new_notices([text])
    with nullcontext(shared) if shared else closing(Networks(loaded, wanted)) as networks:
        # a GPU computes faster than one video is read; elsewhere reading one leaves cores to the networks of another
        most = GPU_READERS if device != "cpu" else min(MAX_AT_ONCE, 1 + default_workers() // 2)
        yield from run.session(networks, most if len(videos) > 1 else 1, recorded)
        yield from run.session(networks, len(live), live)
    log.finish(run.timelines)
    compared = compare(run.timelines, output.labels, loaded.classes, options.limits.start) if output.labels else ""
    failures = tuple(log.events)
    yield Finished(
        Detected(run.timelines, failures, run.write_index(), run.stalled, run.interrupt is not None, compared)
    )
    if run.interrupt:
        raise run.interrupt


def compare(timelines: Mapping[str, Mapping[str, Any]], labels: Labels, classes: Sequence[str], start: float) -> str:
    """Return how many labelled actions timelines contain, in a sentence; empty if none of them has labels.

    Actions of the labels and of the model (`classes`) count, from `start` on, in seconds.
    """
    if find_spec("scipy") is None:  # a small install cannot pair detections with labels
        return ""
    from lstr.metrics.actions import VideoEvents, measure_events, sentence

    def after(segments: Iterable[Segment]) -> list[Segment]:
        return [replace(s, start=max(0.0, s.start - start), end=s.end - start) for s in segments if s.end > start]

    videos = [
        VideoEvents(after(truth), after(map(Segment.from_dict, timeline["segments"])), timeline["duration"] - start)
        for name, timeline in timelines.items()
        if timeline and (truth := truth_of(labels, name)) is not None
    ]
    both = tuple(dict.fromkeys((*labels.classes, *classes)))
    return f"{sentence(measure_events(videos, both))}." if videos else ""


class _Run:
    """The state of one job: one session of the recorded sources, then one of the live ones."""

    def __init__(self, options: DetectOptions, loaded: Checkpoint, log: FailureLog, index: Path | None):
        self.options, self.loaded, self.log, self.index = options, loaded, log, index
        self.thresholds: Thresholds | Mapping[str, Thresholds] = Thresholds()
        self.timelines: dict[str, dict] = {}
        self.stalled = False
        self.interrupt: KeyboardInterrupt | None = None  # the interrupt that ended the live sources
        self._opened: dict[str, Opened] = {}
        self._notices: set[str] = set()

    def new_notices(self, texts: Iterable[str]) -> Iterator[Notice]:
        """Yield each warning that was not yielded before."""
        for text in texts:
            if text not in self._notices:
                self._notices.add(text)
                yield Notice(text)

    def session(self, networks: Networks, places: int, sources: Sequence[Source | Input]) -> Iterator[SourceEvent]:
        """Yield the events of some sources. Raises the failure of a live source that is the only one."""
        alone = len(sources) == 1 and isinstance(sources[0], Input)
        options = self.options
        session = Session(
            self.loaded,
            networks,
            places,
            thresholds=self.thresholds,
            limits=options.limits,
            live=options.live,
            output=options.output,
            index=self.index,
            sinks=options.sinks,
            log=self.log if options.keep_going else None,
        )
        with session:
            try:
                with closing(session.events()) as events:
                    for source in sources:
                        session.add(source)
                    yield from self._record(events, alone)
            except KeyboardInterrupt as interrupt:  # the usual end of a camera
                if not any(isinstance(source, Input) for source in sources):
                    self.write_index()  # finished pages link to it
                    raise
                self.interrupt = interrupt
                yield from self._record(session.leave(), alone)

    def _record(self, events: Iterator[SourceEvent], alone: bool) -> Iterator[SourceEvent]:
        """Yield the events of a session, and keep what the result needs."""
        output = self.options.output
        for event in events:
            match event:
                case Notice(text, repeats=False):
                    yield from self.new_notices([text])
                    continue
                case Opened():
                    self._opened[event.id] = event
                    why = "is live" if event.live else "" if event.video or self.timelines else "has no frames"
                    if output.folder and "mp4" in output.formats and why:
                        yield from self.new_notices([f"{event.origin} {why}, so no mp4 is written."])
                case Ended() if event.timeline:
                    self.timelines[event.id] = event.timeline
                case Failed():
                    self.stalled |= isinstance(event.error, StalledError)
                    if alone and isinstance(event.error, LstrError):
                        raise event.error
                    if alone:
                        raise UnforeseenError(event.reason, event.hint) from event.error
            yield event

    def write_index(self) -> Path | None:
        """Write the page over several pages; return its path, None if there is nothing to write."""
        output, failures = self.options.output, self.log.events
        several = self.index or len(self.timelines) + len(failures) > 1
        if not (output.folder and output.has_pages and self.timelines and several):
            return None
        from lstr.pipelines.pages.page import index_path, write_index

        names = {source_id: self._opened[source_id].file_name for source_id in self.timelines}
        timelines = {names[source_id]: timeline for source_id, timeline in self.timelines.items()}
        truth = {name: truth_of(output.labels, source_id) for source_id, name in names.items()}
        reasons = [failure.reason for failure in failures]
        is_dated = any(source.dated for source in self._opened.values())
        name = dated("index", output.folder) if is_dated else "index"
        path = self.index or index_path(output.folder, timelines, name)
        return write_index(output.folder, timelines, truth=truth, failed=reasons, path=path)
