"""A source and a checkpoint to decisions, for Python callers."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.extractors.video.live_reader import LiveOptions
from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Decided, Ended, Opened
from lstr.pipelines.detection.job import DetectEvent, DetectOptions, detect_sources
from lstr.pipelines.detection.networks import NetworkOptions
from lstr.pipelines.detection.sources import ALL, Limits
from lstr.pipelines.networks.checkpoint_recipe import streams_taken
from lstr.pipelines.progress import warn
from lstr.pipelines.thresholds.choice import ThresholdChoice


def detect(
    source: str | Path,
    checkpoint: str | Path | Checkpoint | None = None,
    *,
    networks: NetworkOptions | Mapping[str, Any] | str | Path | None = None,
    thresholds: ThresholdChoice = None,
    device: str | None = None,
    limits: Limits = ALL,
    live: LiveOptions | None = None,
) -> Iterator[Decision]:
    """Decisions of a video, camera or address, one per quarter second of it, each made without looking ahead.

    source: as for `lstr detect`. checkpoint: a model file (.lstr), which needs nothing else, a checkpoint,
    or one that is loaded; without it $LSTR_CHECKPOINT, else the default model. networks: other weights than those in
    the file or beside the run: the folder that `lstr finetune` left, or {"rgb": FILE, "flow": FILE} with other fields
    of NetworkOptions by name. thresholds: a Thresholds, values by name as {"on": 0.4}, or either by class. device:
    "cpu" or "cuda"; without it a GPU when there is one.

    What is still on when a source ends is an event too, `ended` with `still_on`: of a file it comes with the last
    decision, of a live source, whose last decision nobody knows before, with that decision once more.

    Warns where the networks carry random weights, or a published checkpoint leaves something open. Raises the typed
    errors of `lstr.errors` and `lstr.errors`. `lstr.pipelines.detection.job` takes several sources,
    writes files, and reports more than decisions.
    """
    loaded = checkpoint if isinstance(checkpoint, Checkpoint) else load_checkpoint(checkpoint, device=device)
    options = DetectOptions(
        loaded,
        device=device,
        networks=NetworkOptions.of(networks, streams_taken(loaded) or loaded.config.streams),
        thresholds=thresholds,
        limits=limits,
        live=live or LiveOptions(),
        keep_going=False,
    )
    with closing(detect_sources([source], options)) as events:
        yield from decisions_of(_warned(events))


def _warned(events: Iterable[DetectEvent]) -> Iterator[DetectEvent]:
    for event in events:
        warn(event)
        yield event


def decisions_of(events: Iterable[DetectEvent], at_once: bool = False) -> Generator[Decision, None, None]:
    """The decisions of one source, with the events of its end as `detect` says.

    Those of a file come one later than they are made, since the last one has these events; those of a live source, and
    all with `at_once`, do not.
    """
    newest: Decision | None = None  # of a file it is not out yet
    try:
        for event in events:
            if isinstance(event, Opened):
                at_once = at_once or event.live
            elif isinstance(event, Decided):
                before, newest = newest, event.decision
                if at_once:
                    yield newest
                elif before:
                    yield before
            elif isinstance(event, Ended) and newest:
                if not at_once:
                    yield replace(newest, events=[*newest.events, *event.events])
                elif event.events:
                    yield replace(newest, events=[*event.events], gaps=[])
                newest = None
    except Exception:
        if newest and not at_once:
            yield newest
        raise
