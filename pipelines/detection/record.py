"""What a detection on one source leaves behind: its lines at once, the files of a whole run at the end."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TextIO

import numpy as np

from extractors.video.frames import CHUNK_SECONDS
from extractors.video.live_reader import Gap
from lstr.checkpoint import Checkpoint
from lstr.timeline import FORMAT, Timeline
from pipelines.annotations.format import Detection
from pipelines.detection.decision import Decision, span
from pipelines.detection.outputs import open_lines, write_lines, write_outputs
from pipelines.detection.spool import Spool
from pipelines.detection.status import LATENCIES
from pipelines.networks.checkpoint_recipe import recipe_of


class Record:
    """Writes what is decided on one source; use it as a context manager. Its memory does not grow with the source.

    `output` gets ID.jsonl, a line at a time, and the other `formats` when the record is finished; `lines` takes the
    JSONL too, with the source in each line where it is `shared` by several. `live` says what the decisions' latency is.
    """

    def __init__(
        self,
        source_id: str,
        origin: str,
        loaded: Checkpoint,
        timeline: Timeline,
        output: Path | None,
        formats: Collection[str],
        lines: TextIO | None = None,
        shared: bool = False,
        live: bool = False,
    ):
        self.id, self.origin = source_id, origin
        self.decided = 0
        self.chunks = 0
        """Chunks up to the newest one decided, with those before and between that were not."""
        self._loaded, self._timeline, self._output, self._formats = loaded, timeline, output, formats
        self._named = {"source": source_id} if shared else {}
        self._lines, self._live = lines, live
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._files = ExitStack()
        self._start = perf_counter()

    def __enter__(self) -> "Record":
        with ExitStack() as stack:
            with_scores = self._output is not None and {*self._formats} != {"jsonl"}
            self._spool = stack.enter_context(Spool(len(self._loaded.classes), self._output, with_scores))
            written = self._output is not None and "jsonl" in self._formats
            self._file = stack.enter_context(open_lines(self._output / f"{self.id}.jsonl")) if written else None
            self._files = stack.pop_all()
        return self

    def close(self) -> None:
        """Let go of its files, finished or not."""
        self._files.close()

    def __exit__(self, *exception) -> None:
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
        self._spool.add(decision.chunk, decision.scores)
        kept = [{"gap": gap.reason, **span(gap)} for gap in gaps]
        self._tell(decision.lines(), [*kept, *(event.to_dict() for event in decision.events)])
        self._timeline.segments.clear()
        self._timeline.expected.clear()

    def finish(
        self,
        duration: float | None = None,
        warnings: Sequence[str] = (),
        video: Path | None = None,
        truth: list[dict] | None = None,
        embed: int = 0,
        more: Mapping | None = None,
    ) -> dict:
        """End what is still on and write the files of a whole run; the timeline.

        `duration` in seconds, to the newest decision without it; `more` goes into the timeline; the rest as for
        `pipelines.annotations.format.Detection`.
        """
        end = self.chunks * CHUNK_SECONDS
        last = [event.to_dict() for event in self._timeline.finish(end)]
        self._tell(last, last)
        seconds = perf_counter() - self._start
        kept = self._spool.lines()
        events = [line for line in kept if "event" in line]
        ended = [event for event in events if event["event"] == "ended"]
        expected = [{**event} for event in events if event["event"] == "expected"]
        for event in expected:
            del event["event"]
        loaded = self._loaded
        document = {
            "format": FORMAT,
            "source": self.origin,
            "duration": end if duration is None else duration,
            "checkpoint": str(loaded.path),
            "recipe": recipe_of(loaded).id if loaded.recipe else None,
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
            "gaps": [{"start": g["start"], "end": g["end"], "reason": g["gap"]} for g in kept if "gap" in g],
            "speed": {
                "seconds": round(seconds, 2),
                "decisions_per_second": round(self.decided / seconds, 2),
                "realtime_factor": round(self.decided * CHUNK_SECONDS / seconds, 3),
                **self._latency(),
            },
            "warnings": list(warnings),
            **(more or {}),
        }
        if self._spool.with_scores:
            scores = self._spool.scores(self.chunks)
            detection = Detection(self.id, document, scores, events, video, truth, loaded.recipe, embed)
            write_outputs(self._output, detection, self._formats)
        return document

    def _latency(self) -> dict:
        """Of the newest decisions, in milliseconds."""
        if not self._live:
            return {"lstr_step_ms_median": round(float(np.median(self._latencies)), 2)}
        p50, p95 = np.percentile(self._latencies, (50, 95))
        return {"latency_ms": {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}}

    def _tell(self, lines: Sequence[Mapping], kept: Sequence[Mapping]) -> None:
        """Lines for who follows, and what of them the files need."""
        for sink, named in ((self._lines, self._named), (self._file, {})):
            if sink:
                write_lines([sink], [{**named, **line} for line in lines])
        self._spool.add_lines(kept)


def sorted_segments(segments: Iterable[dict]) -> list[dict]:
    """Segments by start, then label."""
    return sorted(segments, key=lambda s: (s["start"], s["label"]))
