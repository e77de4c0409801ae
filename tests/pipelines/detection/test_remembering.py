"""Detection by features of a network that remembers: files, cameras side by side, and a gap that makes all forget."""

from contextlib import closing

import numpy as np
import pytest

from lstr.extractors.memory import StreamMemory
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.live_input import PROMPT, Input, parse_live
from lstr.extractors.video.live_reader import LiveOptions
from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.events import Decided
from lstr.pipelines.detection.networks import NetworkOptions, open_networks
from lstr.pipelines.detection.sources import ALL
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.features.folder import open_features
from tests.support.detections import decisions_of, open_sources, run_live, run_recorded
from tests.support.served import TS_HEAD, piped, served
from tests.support.small_set import NAMES, write_small_set
from tests.support.videos import remux

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    """Videos, features, a checkpoint, its networks, and two of the videos as MPEG-TS."""
    root = tmp_path_factory.mktemp("remembering")
    made = write_small_set(root, {**NAMES, "rgb": "movinet-a0-stream"})
    loaded = load_checkpoint(made.checkpoint)
    names = ("scene_00", "scene_03")
    streams = [remux(made.videos / f"{name}.mp4", root / f"{name}.ts").read_bytes() for name in names]
    with open_networks(loaded, NetworkOptions(flow_threads=1)) as (twostream, workers, _):
        yield made, loaded, (twostream, workers), streams


def scores(decisions):
    return np.stack([decision.scores for decision in decisions])


def watched(given, loaded, networks, on_gap="keep", **options):
    live = LiveOptions(on_lag="wait", **options)
    events = run_live(given, loaded, networks, limits=ALL, live=live, log=FailureLog(None), on_gap=on_gap)
    found: dict[str, list] = {}
    for event in events:
        if isinstance(event, Decided):
            found.setdefault(event.id, []).append(event.decision)
    return found


def test_a_file_has_the_features_that_were_extracted(remembering):
    made, _, (twostream, workers), _ = remembering
    folder = open_features(made.features)
    stored = np.array(folder.arrays("scene_03")["rgb"])
    chunks = list(open_chunks(made.videos / "scene_03.mp4", 96)[2])
    rows = np.stack([row.rgb for row in twostream.rows(chunks, workers)])
    assert np.array_equal(rows, stored)
    later = np.stack([row.rgb for row in twostream.rows(chunks[5:], workers)])
    assert not np.array_equal(later, stored[5:]), "what was before is a part of them"


def test_cameras_side_by_side_are_decided_as_files(remembering, tmp_path):
    """Two at once share batches, and each goes on with a memory of its own."""
    _, loaded, networks, streams = remembering
    expected = []
    for n, stream in enumerate(streams):
        (tmp_path / f"{n}.ts").write_bytes(stream)
        with closing(open_sources([tmp_path / f"{n}.ts"], loaded, NetworkOptions(flow_threads=1))) as sources:
            expected.append(scores(decisions_of(run_recorded(next(sources), loaded))))
    with piped(streams[0]) as file, served([streams[1]]) as port:
        given = [Input("a", file, options=PROMPT, lasting=False, drops=False), parse_live(f"tcp://127.0.0.1:{port}")]
        found = watched(given, loaded, networks)
    assert len(found) == 2
    for name, whole in zip(("a", next(name for name in found if name != "a")), expected, strict=True):
        assert len(found[name]) >= 16
        assert np.abs(scores(found[name]) - whole[: len(found[name])]).max() < 1e-5


def test_a_gap_makes_networks_forget_where_the_model_does(remembering, monkeypatch):
    """A source that comes back after a while; with `keep` they go on with what they knew."""
    _, loaded, networks, streams = remembering
    part, forgotten = streams[0][: len(streams[0]) * 2 // 5 // 188 * 188], list[int]()
    forget = StreamMemory.forget
    monkeypatch.setattr(StreamMemory, "forget", lambda memory: (forgotten.append(1), forget(memory))[1])
    for on_gap, times in (("keep", 0), ("reset", 1)):
        with served([part], [part], head=TS_HEAD) as port:
            given = [parse_live(f"http://127.0.0.1:{port}/a.ts")]
            found = watched(given, loaded, networks, on_gap, timeout=1.5)
        (decisions,) = found.values()
        assert any(decision.gaps for decision in decisions) and len(forgotten) == times
