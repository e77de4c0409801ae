"""The files of a source when it ends: its timeline, and one file per chosen format."""

import glob
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lstr.chunk import CLOCK
from lstr.errors import VideoError
from lstr.labels.label_set import Labels
from lstr.labels.segment import Segment
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.annotations.format import Detection, format_named
from lstr.pipelines.detection.decision import End, Recorder
from lstr.pipelines.detection.options import FORMATS, OutputOptions
from lstr.pipelines.model_files.networks import recipe_of
from lstr.timeline import FORMAT, iso

# The fields of an `ended` event that a timeline has.
SEGMENT = ("label", "start", "end", "score", "still_active", "start_at", "end_at", "people")


class TimelineFiles(Recorder):
    """Writes the timeline of a source, and a file of each chosen format, when it ends."""

    def __init__(
        self,
        loaded: Checkpoint,
        options: OutputOptions,
        thresholds: Mapping[str, Any],
        origins: Mapping[str, str],
        index: Path | None,
    ):
        """Also of the rules of the timeline, and for pages the origins of the networks by stream, and the index."""
        super().__init__(loaded, options)
        self._thresholds, self._origins, self._index = thresholds, origins, index

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
                origins=self._origins,
                index=self._index,
                embed=options.embed,
                people=[{"time": line["time"], "people": line["people"]} for line in kept if "chunk" in line],
            )
            assert options.folder, "scores are kept only for a folder"
            failure = None
            # the slowest first and the timeline last: an interrupt leaves no file that looks like a complete run
            others = [name for name in options.formats if name not in FORMATS]  # of other packages
            ours = [name for name in reversed(FORMATS) if name in options.formats]
            for form in map(format_named, [*others, *ours]):
                try:
                    if form.detects and (source.video or not form.needs_video):
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
        (seconds, per_second), source, loaded = end.spent, self._source, self._loaded
        recipe, clock = recipe_of(loaded), loaded.clock
        ended = [line for line in kept if line.get("event") == "ended"]
        expected = [line for line in kept if line.get("event") == "expected"]
        if end.live is None:
            latency: dict[str, Any] = {"lstr_step_ms_median": round(float(np.median(self._latencies)), 2)}
        else:
            p50, p95 = np.percentile(self._latencies, (50, 95))
            latency = {"latency_ms": {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}}
        document: dict[str, Any] = {
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
        for segment in document["segments"]:
            if people := segment.get("people"):
                segment["subject"] = ", ".join(f"person {person['id']}" for person in people)
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
        if end.live is not None:
            document["live"] = {**end.live}
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
