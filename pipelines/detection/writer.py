"""What a detection on one source leaves behind: its lines at once, the files of a whole run at the end."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from lstr.checkpoints.checkpoint import Checkpoint
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.extractors.video.live_reader import Gap
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.format import Detection
from lstr.pipelines.detection.decision import Decision, span
from lstr.pipelines.detection.effort import Since
from lstr.pipelines.detection.outputs import DEFAULT, open_lines, write_lines, write_outputs
from lstr.pipelines.detection.spool import Spool
from lstr.pipelines.detection.status import LATENCIES
from lstr.pipelines.networks.checkpoint_recipe import recipe_of
from lstr.timeline import FORMAT, Timeline


@dataclass(frozen=True)
class OutputOptions:
    """What a detection leaves behind, and where."""

    folder: Path | None = None
    """Gets ID.jsonl, line by line, and when a source is over ID and an ending for each of the other `formats`."""
    formats: Collection[str] = DEFAULT
    """Of the files in the folder: names of `outputs.FORMATS`."""
    lines: TextIO | None = None
    """Takes the JSONL too."""
    labels: Labels | None = None
    """Drawn beside the detections."""
    embed: int = 0
    """Bytes up to which a video is put into its page."""

    @property
    def has_pages(self) -> bool:
        """Whether each source gets a page."""
        return self.folder is not None and "html" in self.formats


NO_FILES = OutputOptions()


class SourceWriter:
    """Writes what is decided on one source; use it as a context manager. Its memory does not grow with the source.

    What the source took and cost counts from `since` on. Where the stream of lines is `shared` by several sources, each
    of its lines names the source.
    """

    def __init__(
        self,
        source_id: str,
        origin: str,
        loaded: Checkpoint,
        timeline: Timeline,
        options: OutputOptions,
        since: Since,
        shared: bool = False,
    ):
        self.id, self.origin = source_id, origin
        self.decided = 0
        self.chunks = 0
        """Chunks up to the newest one decided, with those before and between that were not."""
        self._loaded, self._timeline, self._options = loaded, timeline, options
        self._named = {"source": source_id} if shared else {}
        self._actions = [c for c, label in enumerate(loaded.classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._best: tuple[float, str, float] | None = None  # score, class, time
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._files = ExitStack()
        self._since = since

    def __enter__(self) -> "SourceWriter":
        with ExitStack() as stack:
            folder, formats = self._options.folder, self._options.formats
            with_scores = folder is not None and {*formats} != {"jsonl"}
            self._spool = stack.enter_context(Spool(len(self._loaded.classes), folder, with_scores))
            written = open_lines(folder / f"{self.id}.jsonl") if folder and "jsonl" in formats else None
            self._file = stack.enter_context(written) if written else None
            self._files = stack.pop_all()
        return self

    def close(self) -> None:
        """Close its files, finished or not."""
        self._files.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def take(self, decision: Decision) -> None:
        """Write a decision's lines out of this process, and keep what the other files need."""
        gaps = decision.gaps
        if self.decided == 0:  # those before --start
            first = min([decision.chunk, *(gap.first for gap in gaps)])
            gaps = [*([Gap(0, first, "skipped")] if first else []), *gaps]
        self.decided += 1
        self.chunks = decision.chunk + 1
        self._latencies.append(decision.latency_ms)
        for c in self._actions:
            if self._best is None or decision.scores[c] > self._best[0]:
                self._best = float(decision.scores[c]), self._loaded.classes[c], decision.time
        self._spool.add(decision.chunk, decision.scores)
        kept = [{"gap": gap.reason, **span(gap)} for gap in gaps]
        self._write(decision.lines(), [*kept, *(event.to_dict() for event in decision.events)])

    def finish(
        self,
        duration: float | None = None,
        video: Path | None = None,
        warnings: Sequence[str] = (),
        live: Mapping | None = None,
    ) -> dict:
        """End what is still on and write the files of a whole run; the timeline.

        `duration` in seconds, to the newest decision without it; `video` is the file to show; `live` how a live source
        was read, whose latency counts from the frame that closed the chunk. Raises as `write_outputs`.
        """
        end = self.chunks * CHUNK_SECONDS
        last = [event.to_dict() for event in self._timeline.finish(end)]
        self._write(last, last)
        seconds = self._since.seconds
        kept = self._spool.lines()
        events = [line for line in kept if "event" in line]
        ended = [event for event in events if event["event"] == "ended"]
        expected = [event for event in events if event["event"] == "expected"]
        loaded, recipe, best = self._loaded, recipe_of(self._loaded), self._best
        document = {
            "format": FORMAT,
            "source": self.origin,
            "duration": end if duration is None else duration,
            "checkpoint": str(loaded.path),
            "recipe": recipe.id if recipe else None,
            "classes": list(loaded.classes),
            "seconds_per_chunk": CHUNK_SECONDS,
            "chunks": self.chunks,
            "decided": self.decided,
            "thresholds": self._timeline.describe(),
            "segments": sorted_segments({key: e[key] for key in ("label", "start", "end", "score")} for e in ended),
            **(
                {"expected": [{key: e[key] for key in e if key != "event"} for e in expected]}
                if loaded.config.n_ahead
                else {}
            ),
            **({"best": {"label": best[1], "score": round(best[0], 4), "time": best[2]}} if best else {}),
            "gaps": [{"start": g["start"], "end": g["end"], "reason": g["gap"]} for g in kept if "gap" in g],
            "speed": {
                "seconds": round(seconds, 2),
                "decisions_per_second": round(self.decided / seconds, 2),
                "realtime_factor": round(self.decided * CHUNK_SECONDS / seconds, 3),
                "processor_seconds_per_video_second": round(self._since.processor_seconds(), 4),
                **self._latency(live is not None),
            },
            "warnings": list(warnings),
            **({"live": dict(live)} if live is not None else {}),
        }
        options = self._options
        if options.folder and self._spool.with_scores:
            scores, truth = self._spool.scores(self.chunks), truth_of(options.labels, self.id)
            detection = Detection(self.id, document, scores, events, video, truth, loaded.recipe, options.embed)
            write_outputs(options.folder, detection, options.formats)
        return document

    @property
    def page(self) -> Path | None:
        """Where its page is, or will be; None without one."""
        return self._options.folder / f"{self.id}.html" if self._options.folder and self._options.has_pages else None

    def _latency(self, live: bool) -> dict:
        """Of the newest decisions, in milliseconds."""
        if not live:
            return {"lstr_step_ms_median": round(float(np.median(self._latencies)), 2)}
        p50, p95 = np.percentile(self._latencies, (50, 95))
        return {"latency_ms": {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}}

    def _write(self, lines: Sequence[Mapping], kept: Sequence[Mapping]) -> None:
        """Write lines out, and keep what the files of a whole run need of them."""
        for sink, named in ((self._options.lines, self._named), (self._file, {})):
            if sink:
                write_lines([sink], [{**named, **line} for line in lines])
        self._spool.add_lines(kept)


def truth_of(labels: Labels | None, video_id: str) -> Sequence[Segment] | None:
    """A video's labelled segments, to draw beside the detected ones; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return video.segments if video else None


def sorted_segments(segments: Iterable[dict]) -> list[dict]:
    """Segments by start, then label."""
    return sorted(segments, key=lambda s: (s["start"], s["label"]))
