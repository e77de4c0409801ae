"""Run detections, and select from their events."""

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from lstr import checkpoint
from lstr.extractors.video.inputs import Input
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import Source, find_recorded, recorded_sources
from tests.support.feature_set import TINY

ONE_THREAD = NetworkOptions(flow_threads=1)


def decisions_of(events: Iterable) -> list[Decision]:
    """Return the decisions among events."""
    return [event for event in events if isinstance(event, Decision)]


def scores_of(decisions: Iterable[Decision]) -> np.ndarray:
    """Return the scores (chunks, classes) of decisions."""
    return np.stack([decision.scores for decision in decisions])


def dated_file(folder: Path, source_id: str, suffix: str) -> Path:
    """Return the only file of a source with a suffix; its name may have a date."""
    (path,) = (path for path in folder.glob(f"{source_id}*") if path.name.endswith(suffix))
    return path


def lines_of(folder: Path, source_id: str) -> list[dict]:
    """Return the JSON lines of a source, all of them complete."""
    *lines, rest = dated_file(folder, source_id, ".jsonl").read_text().split("\n")
    assert not rest
    return [json.loads(line) for line in lines]


def pattern_camera(name: str = "camera", size: str = "96x64") -> Input:
    """Return a camera that shows FFmpeg's test pattern, as fast as it is read."""
    return Input(name, f"testsrc=size={size}:rate=30", demuxer="lavfi")


def sources_of(*paths, loaded) -> list[Source]:
    """Return recorded sources, in their order."""
    return recorded_sources(*find_recorded(paths), loaded)


def run_session(sources: Sequence, loaded, networks=None, places: int = 1, **options) -> Generator:
    """Yield the events of sources to their end; without a log, raise their errors."""
    own = Networks(loaded, ONE_THREAD)
    with closing(own), Session(loaded, networks or own, places, **options) as session:
        for source in sources:
            session.add(source)
        yield from session.events()


def open_networks(loaded, made) -> Networks:
    """Return networks that are open, and stay open."""
    networks = Networks(loaded)
    networks.made = made if len(made) == 3 else (*made, [])
    return networks


def tiny_checkpoint(path: Path, classes: tuple[str, ...], rgb_dim: int = 6, flow_dim: int = 2, recipe=None):
    """Write and load a model for features of two widths."""
    torch.manual_seed(0)
    model = make_model(configure(rgb_dim=rgb_dim, flow_dim=flow_dim, **TINY), len(classes)).eval()
    with torch.no_grad():
        model.classifier.weight *= 20  # so that scores rise and fall
    checkpoint.save(path, model, classes, recipe, {})
    return checkpoint.load(path)
