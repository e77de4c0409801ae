"""The files of a source: its decisions as JSON lines, its timeline, and one file per chosen format."""

import errno
import glob
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from lstr.chunk import CLOCK
from lstr.errors import VideoError
from lstr.extractors.stages import WRITE
from lstr.extractors.video.frames import Gap
from lstr.files.atomic import unwritable
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels
from lstr.labels.segment import Segment
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.annotations.format import Detection, format_named
from lstr.pipelines.detection.decision import LATENCIES, Decision, End, Opened, Sink
from lstr.pipelines.detection.options import FORMATS, OutputOptions
from lstr.pipelines.model_files.networks import recipe_of
from lstr.timeline import FORMAT, iso

EMPTY_ROWS = 4096  # written at a time where a source was disconnected
# The fields of an `ended` event that a timeline has.
SEGMENT = ("label", "start", "end", "score", "still_on", "start_at", "end_at")


class JsonLines(Sink):
    """The lines of a source in ID.jsonl of a folder, or in a stream, where `named` lines have the id of their source.

    A file needs all lines; the reader of a stream may be slower than a camera. A live source gets a new file, which is
    removed if nothing is decided; a recorded one replaces the file of an earlier run at its first decision. With
    `events_only` there are no lines of decisions and dropped chunks, only of events and of a source that comes back.
    """

    def __init__(self, target: Path | TextIO, named: bool = False, events_only: bool = False):
        self.needs_all = isinstance(target, Path)
        self.name = "its JSONL" if self.needs_all else "the lines"
        self._target, self._is_named, self._events_only = target, named, events_only
        self._stream: TextIO | None = None

    def open(self, source: Opened) -> None:
        """Raise OutputError if the file of a live source cannot be opened."""
        self._prefix = {"source": source.id} if self._is_named else {}
        self._source, self._is_empty = source, bool(source.dated)
        if not isinstance(self._target, Path):
            self._stream = self._target
        elif source.dated:
            self._stream = open_lines(self._target, source)

    def take(self, decision: Decision) -> None:
        """Write the lines of a decision. Raises OutputError if the file cannot be opened."""
        self._is_empty = False
        if self._stream is None:
            assert isinstance(self._target, Path)
            self._stream = open_lines(self._target, self._source)
        lines = decision.lines()
        if self._events_only:
            lines = [line for line in lines if "event" in line or line.get("gap") == "unseen"]
        self._write(lines)

    def close(self, end: End) -> None:
        """Write the events of the end."""
        try:
            if not end.error:
                self._write(event.to_dict() for event in end.events)
        finally:
            if self.needs_all and self._stream:
                self._stream.close()
                if self._is_empty:  # otherwise each restart of a camera would leave a file
                    Path(self._stream.name).unlink(missing_ok=True)

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps({**self._prefix, **value}, ensure_ascii=False) + "\n" for value in values]
        if not lines:
            return
        assert self._stream, "it is open"
        try:
            if self.needs_all and not os.fstat(self._stream.fileno()).st_nlink:  # the lines would be lost
                raise unwritable(Path(self._stream.name), OSError(errno.ENOENT, "it was deleted while in use"))
            self._stream.write("".join(lines))  # in one call, because several cameras may share a stream
            self._stream.flush()
        except Exception as error:
            WRITE.mark(error)  # a pipe whose reader has gone ends the run
            raise


def open_lines(folder: Path, source: Opened) -> TextIO:
    """Open the JSONL file of a source. Raises OutputError."""
    path = folder / f"{source.file_name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x" if source.dated else "w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error


class TimelineFiles(Sink):
    """The timeline of one source, and a file of each chosen format when it ends.

    A source may run for days, so scores and events are on disk instead of in memory: in files of the output folder, or
    of the system's temporary folder, that have no names and vanish when closed. `spent` returns the seconds so far, and
    processor seconds per second of video.
    """

    needs_all, name = True, "its files"

    def __init__(
        self,
        loaded: Checkpoint,
        options: OutputOptions,
        thresholds: Mapping[str, Any],
        spent: Callable[[], tuple[float, float]],
    ):
        self._loaded, self._options, self._thresholds, self._spent = loaded, options, thresholds, spent
        self._decided = self._chunks = 0
        """Decisions, and chunks up to the latest one."""
        self._actions = [c for c, label in enumerate(loaded.classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._best: tuple[float, str, Decision] | None = None  # score, class, decision
        self._first: Decision | None = None
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._lines: IO[str] | None = None
        """JSON objects of gaps and events."""
        self._scores: IO[bytes] | None = None
        """A row of float32 per chunk, NaN without a decision."""

    def open(self, source: Opened) -> None:
        """Raise OutputError if nothing can be kept."""
        self._source, folder = source, self._options.folder
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._lines = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8")
            if folder and {*self._options.formats} != {"jsonl"}:
                self._scores = tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            raise unwritable(folder or Path(tempfile.gettempdir()), error) from error

    def take(self, decision: Decision) -> None:
        """Keep what the files need."""
        assert self._lines, "it is open"
        gaps, scores = decision.gaps, decision.scores
        self._first = self._first or decision
        if self._decided == 0:  # chunks before --start
            first = min([decision.chunk, *(gap.first for gap in gaps)])
            gaps = [*([Gap(0, first, "skipped")] if first else []), *gaps]
        if self._scores:
            while missing := min(decision.chunk - self._chunks, EMPTY_ROWS):
                self._scores.write(np.full((missing, len(scores)), np.nan, np.float32).tobytes())
                self._chunks += missing
            self._scores.write(scores.astype(np.float32, copy=False).tobytes())
        self._chunks = decision.chunk + 1
        self._decided += 1
        self._latencies.append(decision.latency_ms)
        for c in self._actions:
            if self._best is None or scores[c] > self._best[0]:
                self._best = float(scores[c]), self._loaded.classes[c], decision
        lines = [*({"gap": gap.reason, **decision.span(gap)} for gap in gaps), *(e.to_dict() for e in decision.events)]
        self._lines.writelines(json.dumps(line) + "\n" for line in lines)

    def close(self, end: End) -> tuple[dict, Path | None] | None:
        """Write the files. Returns the timeline and the path of its page; None without a decision.

        Raises OutputError, and VideoError if the video cannot be read again, after everything else is written.
        """
        try:
            if end.error or not self._decided or self._lines is None:
                return None
            self._lines.seek(0)
            kept = [*map(json.loads, self._lines), *(event.to_dict() for event in end.events)]
            document, options, source = self._document(end, kept), self._options, self._source
            if not self._scores:
                return document, None
            self._scores.flush()
            shape = (self._chunks, len(self._loaded.classes))
            detection = Detection(
                source.file_name,
                document,
                np.memmap(self._scores, np.float32, "r", shape=shape),
                [line for line in kept if "event" in line],
                source.video,
                truth_of(options.labels, source.id),
                recipe=self._loaded.recipe,
                origins=options.origins,
                index=options.index,
                embed=options.embed,
            )
            assert options.folder, "scores are kept only for a folder"
            failure = None
            # the slowest first and the timeline last: an interrupt leaves no file that looks like a complete run
            others = [name for name in options.formats if name not in FORMATS]  # of other packages
            ours = [name for name in reversed(FORMATS) if name in options.formats]
            for form in map(format_named, [*others, *ours]):
                try:
                    if form.is_due(detection):
                        form.write_detection(options.folder / f"{detection.id}{form.suffix}", detection)
                except VideoError as error:  # the other files are correct
                    failure = error
            if failure:
                raise failure
            return document, options.folder / f"{source.file_name}.html" if options.has_pages else None
        finally:
            for file in (self._scores, self._lines):
                if file:
                    file.close()

    def _document(self, end: End, kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the lstr-timeline/1 document, of the `kept` lines of gaps and events."""
        (seconds, per_second), source, loaded = self._spent(), self._source, self._loaded
        recipe, clock, first = recipe_of(loaded), loaded.clock, self._first
        ended = [line for line in kept if line.get("event") == "ended"]
        expected = [line for line in kept if line.get("event") == "expected"]
        if end.live is None:
            latency: dict[str, Any] = {"lstr_step_ms_median": round(float(np.median(self._latencies)), 2)}
        else:
            p50, p95 = np.percentile(self._latencies, (50, 95))
            latency = {"latency_ms": {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}}
        document = {
            "format": FORMAT,
            "source": source.origin,
            **({"name": source.id} if source.named else {}),
            "duration": clock.at(self._chunks) if end.duration is None else end.duration,
            "checkpoint": str(loaded.path),
            "recipe": recipe.id if recipe else None,
            "classes": list(loaded.classes),
            "seconds_per_chunk": clock.seconds,
            **({"clock": clock.to_dict()} if clock != CLOCK else {}),
            "chunks": self._chunks,
            "decided": self._decided,
            "thresholds": self._thresholds,
            "segments": sorted(
                ({key: e[key] for key in SEGMENT if key in e} for e in ended), key=lambda s: (s["start"], s["label"])
            ),
        }
        if loaded.config.n_ahead:
            document["expected"] = [{key: e[key] for key in e if key != "event"} for e in expected]
        if self._best:
            score, label, decision = self._best
            at = {"at": iso(decision.at)} if decision.at else {}
            document["best"] = {"label": label, "score": round(score, 4), "time": decision.time, **at}
        document |= {
            "gaps": [{**{k: g[k] for k in g if k != "gap"}, "reason": g["gap"]} for g in kept if "gap" in g],
            "speed": {
                "seconds": round(seconds, 2),
                "decisions_per_second": round(self._decided / seconds, 2),
                "realtime_factor": round(clock.length(self._decided) / seconds, 3),
                "processor_seconds_per_video_second": round(per_second, 4),
                **latency,
            },
            "warnings": list(end.warnings),
        }
        if end.live is not None:  # `began` is the wall-clock time of second 0
            began = {"began": iso(first.at - timedelta(seconds=first.time))} if first and first.at else {}
            document["live"] = {**began, **end.live}
        return document


def truth_of(labels: Labels | None, video_id: str) -> Sequence[Segment] | None:
    """Return the labelled segments of a video; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return video.segments if video else None


def dated(name: str, folder: Path) -> str:
    """Return a name with the present date and time, and ~2, ~3 … if the folder has a file of that name."""
    begun = f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    found, n = begun, 1
    while any(folder.glob(f"{glob.escape(found)}.*")):  # a clock may step back, as after a power cut
        n += 1
        found = f"{begun}~{n}"
    return found
