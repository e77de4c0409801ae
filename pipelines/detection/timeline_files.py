"""The files of a source that has ended: its timeline, and one in each chosen format."""

import glob
import json
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK
from lstr.errors import VideoError
from lstr.extractors.video.frames import Gap
from lstr.files.atomic import unwritable
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels
from lstr.labels.segment import Segment
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.annotations.format import Detection, format_named
from lstr.pipelines.detection.decision import LATENCIES, Decision, Opened
from lstr.pipelines.detection.options import FORMATS, OutputOptions
from lstr.pipelines.detection.sinks import End, Sink
from lstr.pipelines.model_files.checkpoint_recipe import recipe_of
from lstr.timeline import FORMAT, iso

EMPTY_ROWS = 4096  # written at a time where a source was away
# The fields of an `ended` event that a timeline has.
SEGMENT = ("label", "start", "end", "score", "still_on", "start_at", "end_at")


class Spool:
    """Scores by chunk and JSON objects on disk instead of in memory, because a source may run for days.

    The files are in `folder`, or in the system's temporary folder. They have no names and vanish when closed.
    """

    def __init__(self, n_classes: int, folder: Path | None = None, with_scores: bool = True):
        self.with_scores = with_scores
        self._n_classes, self._rows = n_classes, 0
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._scores = tempfile.TemporaryFile(dir=folder) if with_scores else None
            self._lines = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8")
        except OSError as error:
            raise unwritable(folder or Path(tempfile.gettempdir()), error) from error

    def add(self, chunk: int, scores: NDArray[np.float32], lines: Iterable[Mapping]) -> None:
        """Keep scores (C,) of a chunk after all earlier ones, and JSON objects."""
        if self._scores:
            while missing := min(chunk - self._rows, EMPTY_ROWS):
                self._scores.write(np.full((missing, self._n_classes), np.nan, np.float32).tobytes())
                self._rows += missing
            self._scores.write(scores.astype(np.float32, copy=False).tobytes())
            self._rows += 1
        self._lines.writelines(json.dumps(line) + "\n" for line in lines)

    def scores(self) -> NDArray[np.float32]:
        """Return (chunks to the latest, C) float32, NaN without a decision: a memory map of the file."""
        shape = (self._rows, self._n_classes)
        if self._scores is None or not self._rows:
            return np.full(shape, np.nan, np.float32)
        self._scores.flush()
        return np.memmap(self._scores, np.float32, "r", shape=shape)

    def lines(self) -> list[dict]:
        """Return the JSON objects in their order."""
        self._lines.seek(0)
        return [json.loads(line) for line in self._lines]

    def close(self) -> None:
        """Close the files, which removes them."""
        for file in (self._scores, self._lines):
            if file:
                file.close()


class TimelineFiles(Sink):
    """The timeline of one source, and a file of each chosen format when it ends. Memory does not grow with its length.

    `spent` returns the seconds so far, and processor seconds per second of video.
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
        self._actions = [c for c, label in enumerate(loaded.classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._best: tuple[float, str, Decision] | None = None  # score, class, decision
        self._first: Decision | None = None
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._spool: Spool | None = None

    def open(self, source: Opened) -> None:
        """Raise OutputError if nothing can be kept."""
        self._source, folder = source, self._options.folder
        with_scores = folder is not None and {*self._options.formats} != {"jsonl"}
        self._spool = Spool(len(self._loaded.classes), folder, with_scores)

    def take(self, decision: Decision) -> None:
        """Keep what the files need."""
        gaps = decision.gaps
        self._first = self._first or decision
        if self._decided == 0:  # chunks before --start
            first = min([decision.chunk, *(gap.first for gap in gaps)])
            gaps = [*([Gap(0, first, "skipped")] if first else []), *gaps]
        self._decided += 1
        self._chunks = decision.chunk + 1  # with the undecided ones
        self._latencies.append(decision.latency_ms)
        for c in self._actions:
            if self._best is None or decision.scores[c] > self._best[0]:
                self._best = float(decision.scores[c]), self._loaded.classes[c], decision
        assert self._spool, "it is open"
        kept = [{"gap": gap.reason, **decision.span(gap)} for gap in gaps]
        self._spool.add(decision.chunk, decision.scores, [*kept, *(event.to_dict() for event in decision.events)])

    def close(self, end: End) -> tuple[dict, Path | None] | None:
        """Write the files. Returns the timeline and the path of its page; None without a decision.

        Raises as `write_outputs`.
        """
        if self._spool is None:
            return None
        try:
            return None if end.error or not self._decided else self._write(self._spool, end)
        finally:
            self._spool.close()

    def _write(self, spool: Spool, end: End) -> tuple[dict, Path | None]:
        (seconds, per_second), options, source = self._spent(), self._options, self._source
        kept = [*spool.lines(), *(event.to_dict() for event in end.events)]
        events = [line for line in kept if "event" in line]
        ended = [event for event in events if event["event"] == "ended"]
        expected = [event for event in events if event["event"] == "expected"]
        loaded, recipe, best, clock = self._loaded, recipe_of(self._loaded), self._best, self._loaded.clock
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
            **(
                {"expected": [{key: e[key] for key in e if key != "event"} for e in expected]}
                if loaded.config.n_ahead
                else {}
            ),
            **({"best": {"label": best[1], "score": round(best[0], 4), **_when(best[2])}} if best else {}),
            "gaps": [{**{k: g[k] for k in g if k != "gap"}, "reason": g["gap"]} for g in kept if "gap" in g],
            "speed": {
                "seconds": round(seconds, 2),
                "decisions_per_second": round(self._decided / seconds, 2),
                "realtime_factor": round(clock.length(self._decided) / seconds, 3),
                "processor_seconds_per_video_second": round(per_second, 4),
                **latency,
            },
            "warnings": list(end.warnings),
            **({"live": {**self._start_time(), **end.live}} if end.live is not None else {}),
        }
        page = None
        if options.folder and spool.with_scores:
            detection = Detection(
                source.file_name,
                document,
                spool.scores(),
                events,
                source.video,
                truth_of(options.labels, source.id),
                recipe=loaded.recipe,
                origins=options.origins,
                subset=subset_of(options.labels, source.id),
                index=options.index,
                embed=options.embed,
            )
            write_outputs(options.folder, detection, options.formats)
            page = options.folder / f"{source.file_name}.html" if options.has_pages else None
        return document, page

    def _start_time(self) -> dict[str, str]:
        """Return the wall-clock time of second 0 of a live source."""
        first = self._first
        return {"began": iso(first.at - timedelta(seconds=first.time))} if first and first.at else {}


def write_outputs(output: Path, detection: Detection, formats: Collection[str]) -> list[Path]:
    """Write a finished detection as ID and the suffix of each format into a folder; return the files.

    `jsonl` is not written here, and `mp4` needs a video. Raises OutputError, and VideoError if the video cannot be read
    again, after everything else is written.
    """
    files, failed = [], None
    # the slowest first and the timeline last: an interrupt leaves no file that looks like a complete run
    others = [name for name in formats if name not in FORMATS]  # of other packages
    for form in map(format_named, (*others, *(name for name in reversed(FORMATS) if name in formats))):
        if not form.is_due(detection):
            continue
        path = output / f"{detection.id}{form.suffix}"
        files.append(path)
        try:
            form.write_detection(path, detection)
        except VideoError as error:  # the other files are correct
            failed = error
    if failed:
        raise failed
    return files


def _when(decision: Decision) -> dict[str, Any]:
    """Return the time of a decision in seconds, for a live source also in wall-clock time."""
    return {"time": decision.time, **({"at": iso(decision.at)} if decision.at else {})}


def truth_of(labels: Labels | None, video_id: str) -> Sequence[Segment] | None:
    """Return the labelled segments of a video; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return video.segments if video else None


def subset_of(labels: Labels | None, video_id: str) -> str | None:
    """Return the subset of a video in the labels; None if they do not state it."""
    return labels.videos[video_id].subset if labels and labels.has_subsets and video_id in labels.videos else None


def dated(name: str, folder: Path) -> str:
    """Return a name with the present date and time, and ~2, ~3 … if the folder has a file of that name."""
    begun = f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    found, n = begun, 1
    while any(folder.glob(f"{glob.escape(found)}.*")):  # a clock may step back, as after a power cut
        n += 1
        found = f"{begun}~{n}"
    return found
