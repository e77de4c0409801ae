"""A source and a checkpoint to decisions, one a chunk, each made before the next chunk is looked at."""

import os
import shutil
from collections.abc import Collection, Generator, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from extractors.errors import ExtractorError
from extractors.video.live_input import Input, parse_live
from extractors.video.live_reader import LiveOptions
from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from lstr.labels import Labels
from lstr.timeline import Thresholds, Timeline, thresholds_of
from pipelines.detection.decision import Decision, decide
from pipelines.detection.live import LiveChain, open_live
from pipelines.detection.record import Record
from pipelines.detection.sources import ALL, Limits, Source, open_networks, open_sources
from pipelines.detection.status import Status
from pipelines.files.atomic import replacing
from pipelines.files.home import home
from pipelines.networks.checkpoint_recipe import recipe_of
from pipelines.networks.checkpoints import assumptions_of, open_checkpoint


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
    return open_checkpoint(find_checkpoint(given), overrides, device)


def detect(
    source: str | Path,
    checkpoint: str | Path | None = None,
    limits: Limits = ALL,
    live: LiveOptions | None = None,
) -> Iterator[Decision]:
    """Decisions of a video, camera or address, one each quarter second of it, each made without looking ahead.

    `source` and `checkpoint` as for `lstr detect`. Raises the typed errors of `lstr.errors` and `extractors.errors`.
    """
    loaded = load_checkpoint(checkpoint)
    given = parse_live(source)
    if given:
        yield from _detect_live(given, loaded, limits, live)
        return
    for opened in open_sources([source], loaded, limits=limits):
        if isinstance(opened, ExtractorError):
            raise opened
        yield from decide(loaded, opened.rows, Timeline(loaded.classes, thresholds_of(loaded)))


def _detect_live(given: Input, loaded: Checkpoint, limits: Limits, live: LiveOptions | None) -> Iterator[Decision]:
    with (
        open_networks(loaded) as (twostream, workers, _),
        open_live([given], loaded, twostream.recipe.long_side, live, limits, thresholds_of(loaded)) as sources,
        LiveChain(sources, loaded, twostream, workers, max_chunks=limits.max_chunks) as chain,
    ):
        for opened, decision in chain.decisions():
            if decision:
                yield decision
            elif opened.error:
                raise opened.error


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
    (`outputs.FORMATS`). `lines` takes the JSONL too. Files of an interrupted run other than the JSONL do
    not appear. `thresholds` are the checkpoint's where none are given; `embed` as for `timeline_page.write_report`.
    `status` is kept up to date for whoever shows it.
    """
    timeline = Timeline(loaded.classes, thresholds_of(loaded) if thresholds is None else thresholds)
    with Record(source.id, source.origin, loaded, timeline, output, formats, lines) as record:
        for decision in decide(loaded, source.rows, timeline, precision, status):
            record.take(decision)
            yield decision
        warnings = [*warnings_of(loaded), *source.warnings]
        return record.finish(source.duration, warnings, source.video, truth, embed)


def truth_of(labels: Labels | None, video_id: str) -> list[dict] | None:
    """A video's labelled segments, to draw beside the detected ones; None without labels or an entry."""
    video = labels.videos.get(video_id) if labels else None
    return [segment.to_dict() for segment in video.segments] if video else None


def warnings_of(loaded: Checkpoint) -> list[str]:
    """What a reader of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.is_random:
        warnings.append(f"the {recipe.random_streams} networks carry random weights: the features are untrained.")
    return warnings
