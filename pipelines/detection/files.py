"""What a detection on one source leaves behind when it is over: its timeline, and the files of a whole run."""

import glob
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from lstr.checkpoints.loaded import Checkpoint
from lstr.chunk import CLOCK
from lstr.errors import VideoError
from lstr.extractors.video.stretches import Gap
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.format import Detection
from lstr.pipelines.annotations.formats import FORMATS as ALL_FORMATS
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.effort import Since
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.sink import End, Sink
from lstr.pipelines.detection.spool import Spool
from lstr.pipelines.detection.status import LATENCIES
from lstr.pipelines.networks.checkpoint_recipe import recipe_of
from lstr.timeline import FORMAT, iso

FORMATS = tuple(name for name, form in ALL_FORMATS.items() if form.detects)
"""Names of what a detection can be written in."""
DEFAULT = ("json", "jsonl", "npy", "html")
"""What is written where no format is chosen."""
SEGMENT = ("label", "start", "end", "score", "still_on", "start_at", "end_at")
"""What a timeline has of an `ended` event."""


@dataclass(frozen=True)
class OutputOptions:
    """What a detection leaves behind, and where."""

    folder: Path | None = None
    """Gets ID.jsonl, line by line, and when a source is over ID and an ending for each of the other `formats`."""
    formats: Collection[str] = DEFAULT
    """Which files the folder gets: names of FORMATS."""
    lines: TextIO | None = None
    """Takes the JSONL too."""
    labels: Labels | None = None
    """Drawn beside the detections."""
    events_only: bool = False
    """Whether the JSONL has no lines of decisions, which are tens of megabytes a day of a camera."""
    embed: int = 0
    """Bytes up to which a video is put into its page."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """What the networks began with, and the licence of that, by stream, for the pages."""
    index: Path | None = None
    """The page over all videos, which each page links."""
    timeline: bool = True
    """Whether what happens is kept until a source is over, for its timeline and its files. Else the folder gets the
    JSONL alone, and what goes on for weeks keeps nothing."""

    @property
    def has_pages(self) -> bool:
        """Whether each source gets a page."""
        return self.folder is not None and "html" in self.formats


NO_FILES = OutputOptions()
NO_TIMELINE = OutputOptions(timeline=False)


class Files(Sink):
    """The timeline of one source, and a file of each chosen format when it is over. Memory does not grow with it."""

    needs_all, name = True, "its files"

    def __init__(self, loaded: Checkpoint, options: OutputOptions, thresholds: Mapping[str, Any], since: Since):
        self._loaded, self._options, self._thresholds, self._since = loaded, options, thresholds, since
        self._decided = self._chunks = 0
        self._actions = [c for c, label in enumerate(loaded.classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._best: tuple[float, str, Decision] | None = None  # score, class, when
        self._first: Decision | None = None
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._spool: Spool | None = None

    def open(self, source: Opened) -> None:
        """Raises OutputError where nothing can be kept."""
        self._source, folder = source, self._options.folder
        with_scores = folder is not None and {*self._options.formats} != {"jsonl"}
        self._spool = Spool(len(self._loaded.classes), folder, with_scores)

    def take(self, decision: Decision) -> None:
        """Keep what the files need."""
        gaps = decision.gaps
        self._first = self._first or decision
        if self._decided == 0:  # those before --start
            first = min([decision.chunk, *(gap.first for gap in gaps)])
            gaps = [*([Gap(0, first, "skipped")] if first else []), *gaps]
        self._decided += 1
        self._chunks = decision.chunk + 1  # with those before and between that were not decided
        self._latencies.append(decision.latency_ms)
        for c in self._actions:
            if self._best is None or decision.scores[c] > self._best[0]:
                self._best = float(decision.scores[c]), self._loaded.classes[c], decision
        assert self._spool, "it is open"
        self._spool.add(decision.chunk, decision.scores)
        kept = [{"gap": gap.reason, **decision.span(gap)} for gap in gaps]
        self._spool.add_lines([*kept, *(event.to_dict() for event in decision.events)])

    def close(self, end: End) -> tuple[dict, Path | None] | None:
        """Write the files; the timeline, and where its page is. None of a source without a decision.

        Raises as `write_outputs`.
        """
        if self._spool is None:
            return None
        with closing(self._spool) as spool:
            if end.error or not self._decided:
                return None
            spool.add_lines(event.to_dict() for event in end.events)
            return self._write(spool, end)

    def _write(self, spool: Spool, end: End) -> tuple[dict, Path | None]:
        seconds, options, source = self._since.seconds, self._options, self._source
        kept = spool.lines()
        events = [line for line in kept if "event" in line]
        ended = [event for event in events if event["event"] == "ended"]
        expected = [event for event in events if event["event"] == "expected"]
        loaded, recipe, best = self._loaded, recipe_of(self._loaded), self._best
        clock = loaded.clock
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
            "segments": sorted_segments({key: e[key] for key in SEGMENT if key in e} for e in ended),
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
                "processor_seconds_per_video_second": round(self._since.processor_seconds(), 4),
                **self._latency(end.live is not None),
            },
            "warnings": list(end.warnings),
            **({"live": {**self._began(), **end.live}} if end.live is not None else {}),
        }
        page = None
        if options.folder and spool.with_scores:
            scores, truth = spool.scores(), truth_of(options.labels, source.id)
            detection = Detection(
                source.file_name,
                document,
                scores,
                events,
                source.video,
                truth,
                recipe=loaded.recipe,
                origins=options.origins,
                subset=subset_of(options.labels, source.id),
                index=options.index,
                embed=options.embed,
            )
            write_outputs(options.folder, detection, options.formats)
            page = options.folder / f"{source.file_name}.html" if options.has_pages else None
        return document, page

    def _began(self) -> dict[str, str]:
        """When a live source was at second 0, on the clock of the wall."""
        first = self._first
        return {"began": iso(first.at - timedelta(seconds=first.time))} if first and first.at else {}

    def _latency(self, live: bool) -> dict:
        """Latencies of the newest decisions, in milliseconds."""
        if not live:
            return {"lstr_step_ms_median": round(float(np.median(self._latencies)), 2)}
        p50, p95 = np.percentile(self._latencies, (50, 95))
        return {"latency_ms": {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}}


def write_outputs(output: Path, detection: Detection, formats: Collection[str]) -> list[Path]:
    """Write a finished detection as ID and the format's suffix into a folder; returns the files.

    `jsonl` is not written here, and `mp4` is left out without a video. Raises OutputError, and VideoError where the
    video cannot be read again, all else being written.
    """
    files, failed = [], None
    # the slowest first and the timeline last: who interrupts the writing finds no file that looks like a whole run
    for name in (name for name in reversed(FORMATS) if name in formats):
        form = ALL_FORMATS[name]
        if not form.is_due(detection):
            continue
        path = output / f"{detection.id}{form.suffix}"
        files.append(path)
        try:
            form.write_detection(path, detection)
        except VideoError as error:  # the rest of the run is sound
            failed = error
    if failed:
        raise failed
    return files


def _when(decision: Decision) -> dict[str, Any]:
    """The time of a decision in seconds, and of a live source on the clock of the wall."""
    return {"time": decision.time, **({"at": iso(decision.at)} if decision.at else {})}


def truth_of(labels: Labels | None, video_id: str) -> Sequence[Segment] | None:
    """A video's labelled segments, to draw beside the detected ones; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return video.segments if video else None


def subset_of(labels: Labels | None, video_id: str) -> str | None:
    """The subset that the labels have a video in; None where they do not say."""
    return labels.videos[video_id].subset if labels and labels.has_subsets and video_id in labels.videos else None


def dated(name: str, folder: Path) -> str:
    """A name with the present date and time, and ~2, ~3 … where the folder has a file of that name."""
    begun = f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    found, n = begun, 1
    while any(folder.glob(f"{glob.escape(found)}.*")):  # a clock may step back, as after a power cut
        n += 1
        found = f"{begun}~{n}"
    return found


def sorted_segments(segments: Iterable[dict]) -> list[dict]:
    """Segments by start, then label."""
    return sorted(segments, key=lambda s: (s["start"], s["label"]))
