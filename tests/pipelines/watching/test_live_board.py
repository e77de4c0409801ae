"""A session with a camera, whose decisions and pictures a board shows."""

import base64
import threading
import time
from contextlib import closing
from functools import partial

import cv2
import numpy as np
import pytest

from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_reader import LiveOptions, LiveReader
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.sources import Limits
from tests.support.detections import opened
from tests.support.means import Means, tiny_checkpoint
from tests.support.watching import board_of


def camera(name: str) -> Input:
    """FFmpeg's test pictures, which come as fast as they are taken."""
    return Input(name, "testsrc=size=96x64:rate=30", demuxer="lavfi", named=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / "c.pt", ("Background", "kick", "wave", "dive"))


def test_a_board_shows_what_a_session_decides(loaded, tmp_path):
    """Twice, as after a lost camera: the columns go on."""
    board, networks = board_of(tmp_path, ("hall",)), opened(loaded, (Means(), None))
    for opening in (1, 2):
        live = LiveOptions(on_lag="wait")
        limits = Limits(max_chunks=6)
        with Session(loaded, networks, sinks=[board.sink], limits=limits, live=live, pictures=board.see) as session:
            session.add(camera("hall"))
            with closing(session.events()) as events:
                list(events)
        (source,) = board.state()["sources"]
        assert source["classes"] == loaded.classes and source["decided"] == 6 * opening and source["link"] == "ended"
        codes = np.frombuffer(base64.b64decode(source["codes"]), np.uint8).reshape(4, source["columns"])
        assert (codes != 255).all(0).sum() == 6 * opening and source["lag_ms"] is not None
    picture = cv2.imdecode(np.frombuffer(board.picture("hall")[1], np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape[1::-1] == (64, 43) and picture.std() > 40, "the frame that the networks have"


def test_one_who_looks_stops_no_reader():
    seen = []

    def look(name, chunk):
        seen.append((name, chunk.index, chunk.frames.shape[0]))
        raise RuntimeError("not here")

    changed = threading.Condition()
    options = LiveOptions(on_lag="wait")
    with LiveReader(camera("hall"), 64, options, changed, 0, 3, seen=partial(look, "hall")) as reader:
        until = time.monotonic() + 10
        while not reader.ended:
            assert time.monotonic() < until
            reader.take()
            time.sleep(0.005)
    assert reader.error is None and seen[:3] == [("hall", k, 6) for k in range(3)]
