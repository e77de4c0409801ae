"""Detection on one recorded source: a video file, or stored features."""

from collections.abc import Generator, Mapping

from lstr.checkpoint import Checkpoint
from lstr.timeline import Thresholds, Timeline, thresholds_of
from pipelines.detection.checkpoint import warnings_of
from pipelines.detection.decision import decide
from pipelines.detection.events import Decided, Ended, Opened
from pipelines.detection.sources import Source
from pipelines.detection.status import Status
from pipelines.detection.writer import NO_FILES, OutputOptions, SourceWriter


def run_recorded(
    source: Source,
    loaded: Checkpoint,
    output: OutputOptions = NO_FILES,
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
    precision: str = "float32",
) -> Generator[Opened | Decided | Ended, None, dict]:
    """Detect on one source, writing as it goes: each decision comes after its line is out. Returns the timeline.

    Files other than the JSONL appear when the source is over, and not where it fails or the run is interrupted.
    `thresholds` are the checkpoint's without others. Raises what reading the source raises, and OutputError.
    """
    timeline = Timeline(loaded.classes, thresholds_of(loaded) if thresholds is None else thresholds)
    status = Status(source.id, source.n_chunks)
    with SourceWriter(source.id, source.origin, loaded, timeline, output) as writer:
        yield Opened(source.id, status, loaded.classes)
        for decision in decide(loaded, source.rows, timeline, precision, status):
            writer.take(decision)
            yield Decided(source.id, decision)
        document = writer.finish(source.duration, source.video, [*warnings_of(loaded), *source.warnings])
    yield Ended(source.id, document, writer.page)
    return document
