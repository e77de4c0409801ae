"""A source and a checkpoint to decisions, one a chunk, each made before the next chunk is looked at."""

import os
import shutil
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TextIO

import numpy as np

from extractors.errors import ExtractorError
from extractors.stages import closed_after
from extractors.twostream import FeatureRow, default_device
from extractors.video import CHUNK_SECONDS
from lstr import checkpoint as checkpoints
from lstr import streaming
from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from lstr.labels import Labels
from pipelines.checkpoint_recipe import recipe_of
from pipelines.home import home
from pipelines.outputs import open_lines, write_lines, write_outputs
from pipelines.sources import Source, open_sources
from pipelines.status import Status
from pipelines.store import replacing
from pipelines.timeline import FORMAT, Event, Thresholds, Timeline, sorted_segments, thresholds_of

TOP = 3


@dataclass(frozen=True)
class Decision:
    """What is said at the end of one chunk. `time` in seconds, scores (C,), latency from features to scores.

    `ahead` is (seconds, label, score) for each later chunk that the model anticipates.
    """

    chunk: int
    time: float
    label: str
    score: float
    top: list[tuple[str, float]]
    latency_ms: float
    events: list[Event]
    scores: np.ndarray = field(repr=False)
    ahead: list[tuple[float, str, float]] = field(default_factory=list)

    def to_dict(self) -> dict:
        """The chunk's JSON object; `ahead` is there for a model that anticipates."""
        ahead = [[seconds, label, round(score, 4)] for seconds, label, score in self.ahead]
        return {
            "chunk": self.chunk,
            "time": self.time,
            "label": self.label,
            "score": round(self.score, 4),
            "top": [[label, round(score, 4)] for label, score in self.top],
            "latency_ms": round(self.latency_ms, 2),
            **({"ahead": ahead} if ahead else {}),
        }


def find_checkpoint(given: str | Path | None) -> Path:
    """The checkpoint given, else $LSTR_CHECKPOINT, else the default one.

    Raises CheckpointError when there is none.
    """
    if given:
        return Path(given)
    if os.environ.get("LSTR_CHECKPOINT"):
        return Path(os.environ["LSTR_CHECKPOINT"])
    default = home() / "default.pt"
    if not default.exists():
        raise CheckpointError(
            "There is no checkpoint to detect with.", "give one with -c PATH, or run `lstr demo` to make one."
        )
    return default


def leave_default(checkpoint: Path) -> Path:
    """Copy a checkpoint to where `lstr detect` looks when none is given; returns that path."""
    target = home() / "default.pt"
    with replacing(target) as temporary:
        shutil.copyfile(checkpoint, temporary)
    return target


def load_checkpoint(
    given: str | Path | None, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """The checkpoint to use, its model on `device` (a GPU when there is one).

    Raises CheckpointError when there is none, or it cannot be read.
    """
    loaded = checkpoints.load(find_checkpoint(given), overrides)
    loaded.model.to(device or default_device())
    return loaded


def decide(
    loaded: Checkpoint,
    rows: Iterable[FeatureRow],
    timeline: Timeline,
    precision: str = "float32",
    status: Status | None = None,
) -> Iterator[Decision]:
    """The causal loop: one feature row in, one decision out, over an explicit stream state.

    `precision` as for `lstr.streaming.create`; `status` is told of each decision before it is given.
    """
    state = streaming.create(loaded.model, precision=precision)
    status = Status("") if status is None else status
    with closed_after(rows) as source:
        for row in source:
            start = perf_counter()
            scores, *later = streaming.step_ahead(loaded.model, state, row.rgb, row.flow).numpy()
            latency_ms = (perf_counter() - start) * 1000
            ahead = [
                ((h + 1) * CHUNK_SECONDS, loaded.classes[said.argmax()], float(said.max()))
                for h, said in enumerate(later)
            ]
            order = np.argsort(-scores)[:TOP]
            top = [(loaded.classes[c], float(scores[c])) for c in order]
            events = timeline.push(row.end_time, scores, np.array(later))
            status.time, status.decided = row.end_time, status.decided + 1
            status.latencies_ms.append(latency_ms)
            status.remember(int(state.chunks[0]), loaded.config)
            yield Decision(row.index, row.end_time, *top[0], top, latency_ms, events, scores, ahead)


def detect(source: str | Path, checkpoint: str | Path | None = None) -> Iterator[Decision]:
    """Decisions of a video file, one each quarter second of it, each made without looking ahead.

    `checkpoint` as for `lstr detect -c`. Raises the typed errors of `lstr.errors` and `extractors.errors`.
    """
    loaded = load_checkpoint(checkpoint)
    for opened in open_sources([source], loaded):
        if isinstance(opened, ExtractorError):
            raise opened
        yield from decide(loaded, opened.rows, Timeline(loaded.classes, thresholds_of(loaded)))


def run(
    source: Source,
    loaded: Checkpoint,
    output: Path | None,
    formats: Collection[str],
    lines: TextIO | None = None,
    truth: list[dict] | None = None,
    precision: str = "float32",
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
    embed: int = 0,
    status: Status | None = None,
) -> Generator[Decision, None, dict]:
    """Detect on one source, writing as it goes; yields each decision after its line is out, returns the timeline.

    `output` gets ID.jsonl (flushed a line at a time), and at the end ID and an ending for each of the other `formats`
    (`pipelines.outputs.FORMATS`). `lines` takes the JSONL too. Files of an interrupted run other than the JSONL do
    not appear. `thresholds` are the checkpoint's where none are given; `embed` as for `pipelines.report.write_report`.
    `status` is kept up to date for whoever shows it.
    """
    timeline = Timeline(loaded.classes, thresholds_of(loaded) if thresholds is None else thresholds)
    scores, events, latencies = [], [], []
    start = perf_counter()
    with ExitStack() as stack:
        sinks = [lines] if lines else []
        if output and "jsonl" in formats:
            sinks.append(stack.enter_context(open_lines(output / f"{source.id}.jsonl")))
        for decision in decide(loaded, source.rows, timeline, precision, status):
            scores.append(decision.scores)
            latencies.append(decision.latency_ms)
            events += decision.events
            write_lines(sinks, [decision.to_dict(), *(event.to_dict() for event in decision.events)])
            yield decision
        last = timeline.finish(len(scores) * CHUNK_SECONDS)
        events += last
        write_lines(sinks, [event.to_dict() for event in last])
    seconds = perf_counter() - start
    document = {
        "format": FORMAT,
        "source": source.origin,
        "duration": source.duration,
        "checkpoint": str(loaded.path),
        "recipe": recipe_of(loaded).id if loaded.recipe else None,
        "classes": list(loaded.classes),
        "seconds_per_chunk": CHUNK_SECONDS,
        "chunks": len(scores),
        "thresholds": timeline.describe(),
        "segments": sorted_segments(timeline.segments),
        **({"expected": timeline.expected} if loaded.config.n_ahead else {}),
        "gaps": [],
        "speed": {
            "seconds": round(seconds, 2),
            "decisions_per_second": round(len(scores) / seconds, 2),
            "realtime_factor": round(len(scores) * CHUNK_SECONDS / seconds, 3),
            "lstr_step_ms_median": round(float(np.median(latencies)), 2),
        },
        "warnings": [*warnings_of(loaded), *source.warnings],
    }
    if output:
        said = [event.to_dict() for event in events]
        page = {"recipe": loaded.recipe, "embed": embed}
        write_outputs(output, source.id, document, np.stack(scores), said, formats, source.video, truth, page)
    return document


def truth_of(labels: Labels | None, video_id: str) -> list[dict] | None:
    """A video's labelled segments, to draw beside the detected ones; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return [{"label": label, "start": start, "end": end} for label, start, end in video.segments] if video else None


def warnings_of(loaded: Checkpoint) -> list[str]:
    """What a reader of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.is_random:
        warnings.append(f"the {recipe.random_streams} networks carry random weights: the features are untrained.")
    return warnings


def assumptions_of(loaded: Checkpoint) -> list[str]:
    """What was assumed because a published checkpoint does not say it, in a sentence; empty when nothing was."""
    if not loaded.assumed:
        return []
    values = ", ".join(f"{name} {value}" for name, value in loaded.assumed.items())
    return [f"{loaded.path} does not say {values}: these are the published defaults; change them with --set model.…"]
