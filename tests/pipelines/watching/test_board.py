"""What a page is told of the sources that are watched, in memory that does not grow."""

import base64
import gc
import json
import threading
import tracemalloc
from datetime import timedelta

import cv2
import numpy as np
import pytest

from lstr.pipelines.detection.sinks import End
from lstr.pipelines.watching import board as board_module
from lstr.pipelines.watching import shown_source
from lstr.pipelines.watching.board import MOST_BYTES, MOST_MESSAGES, Messages
from lstr.pipelines.watching.shown_source import NO_SCORE, ROWS, ScoreRows, codes_of
from tests.support.watching import ACTIONS, START, Camera, board_of, event_of


@pytest.fixture
def board(tmp_path):
    return board_of(tmp_path, ("hall", "kitchen"))


def source_of(board, name: str = "hall") -> dict:
    return next(source for source in board.state()["sources"] if source["name"] == name)


def codes_shown(source: dict) -> np.ndarray:
    """(C, n), as a browser reads them."""
    data = np.frombuffer(base64.b64decode(source["codes"]), np.uint8)
    return data.reshape(len(source["classes"]), source["columns"])


def heard(board, mark: str) -> list[dict]:
    _, texts = board.after(mark)
    return [json.loads(text) for text in texts]


def test_scores_are_a_byte_each():
    assert codes_of(np.array([0, 0.5, 1, 1.5, np.nan], np.float32)).tolist() == [0, 127, 254, 254, NO_SCORE]


def test_what_was_not_decided_has_no_score():
    rows = ScoreRows(2)
    rows.put(7, np.array([1, 2], np.uint8))
    rows.put(10, np.array([3, 4], np.uint8))
    first, codes = rows.columns()
    assert first == 7 and codes.tolist() == [[1, NO_SCORE, NO_SCORE, 3], [2, NO_SCORE, NO_SCORE, 4]]
    rows.put(10 + 3 * ROWS, np.array([5, 6], np.uint8))
    first, codes = rows.columns()
    assert codes.shape == (2, ROWS) and codes[:, -1].tolist() == [5, 6] and (codes[:, :-1] == NO_SCORE).all()


def test_the_state_is_what_the_decisions_were(board):
    camera = Camera(board, "hall")
    for k in range(5):
        camera.show(0.2, k / 10, 0.1)
    source = source_of(board)
    assert source["classes"] == ACTIONS and source["rules"] == {"fall": [0.6, 0.4]} and source["picture"] == 5
    assert codes_shown(source)[1].tolist() == [round(k / 10 * 254) for k in range(5)]
    assert (source["decided"], source["lag_ms"], source["link"]) == (5, 120, "reading")
    assert source["address"].endswith("hall/s") and "hunter2" not in json.dumps(board.state())
    assert source_of(board, "kitchen")["link"] == "waiting"


def test_a_browser_that_slept_catches_up(board):
    camera = Camera(board, "hall")
    mark = board.state()["at"]
    camera.show(0.2, 0.9, 0.1)
    board.tell(event_of(), "new")
    board.snooze({("hall", None): START + timedelta(days=36500), (None, None): START})
    kinds = [message["kind"] for message in heard(board, mark)]
    assert [kind for kind in kinds if kind != "source"] == ["scores", "event", "snoozes"]
    assert heard(board, board.state()["at"]) == []
    for wrong in (
        "",
        "nonsense",
        f"{board.run}-",
        f"{board.run}-99999",
        "other-1",
        f"{board.run}-١",
        f"{board.run}--1",
    ):
        assert board.after(wrong) is None


def test_one_that_slept_too_long_reads_all_anew(board):
    camera, mark = Camera(board, "hall"), board.state()["at"]
    for _ in range(MOST_MESSAGES + 1):
        camera.show(0.1, 0.2, 0.3)
    assert board.after(mark) is None


def test_messages_are_bounded_in_bytes_too():
    messages = Messages()
    for _ in range(50):
        messages.add("x" * (MOST_BYTES // 10))
    assert messages.newest == 50 and messages.after(50) == [] and messages.after(30) is None
    assert len(messages.after(45)) == 5


def test_memory_does_not_grow(board, monkeypatch):
    """Days of decisions, of events that nobody ends, of pictures."""
    monkeypatch.setattr(board_module, "MOST_MESSAGES", 200)
    monkeypatch.setattr(board_module, "MOST_ON", 100)
    camera = Camera(board, "hall")

    def run(n: int) -> None:
        for k in range(n):
            camera.show(0.1, 0.2, 0.3)
            if not k % 4:
                event = event_of(start=START + timedelta(seconds=k))
                board._on[event.id] = event
                board.tell(event, "update")

    def size() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    run(1200)
    before = size()
    run(1200)
    grown = size() - before
    tracemalloc.stop()
    assert len(board._on) == board_module.MOST_ON and grown < 20_000, grown


def test_a_source_that_is_opened_again_goes_on(board, monkeypatch):
    """Its chunks begin with 0 again, its columns and counts do not; the time between has no scores."""
    seconds = [100.0]
    monkeypatch.setattr(shown_source, "monotonic", lambda: seconds[0])
    first = Camera(board, "hall")
    first.status.reconnects = 2
    for _ in range(3):
        first.show(0.1, 0.5, 0.2)
    first.sink.close(End(error=ValueError("rtsp://u:hunter2@hall/s sent no frame.")))
    assert source_of(board)["trouble"] == "rtsp://hall/s sent no frame."
    seconds[0] += 2
    again = Camera(board, "hall")
    again.opened.status.name = "hall~2"
    again.show(0.1, 0.7, 0.2)
    source = source_of(board)
    assert codes_shown(source)[1].tolist() == [127] * 3 + [NO_SCORE] * 8 + [178]
    assert (source["decided"], source["reconnects"], source["trouble"]) == (4, 2, "")


def test_pictures_are_made_where_somebody_looks(board, monkeypatch):
    made, encode, seconds = [], cv2.imencode, [100.0]
    monkeypatch.setattr(board_module, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(board_module.cv2, "imencode", lambda *given: made.append(1) or encode(*given))
    assert board.picture("hall") is None and board.picture("nobody") is None
    camera = Camera(board, "hall")
    for grey in range(40, 80):
        camera.show(0.1, 0.2, 0.3, grey=grey)
    assert not made
    number, data = board.picture("hall")
    shown = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert number == 40 and shown.shape == (48, 64, 3) and abs(int(shown[0, 0, 0]) - 79) < 3
    camera.show(0.1, 0.2, 0.3, grey=200)
    assert board.picture("hall") == (number, data) and len(made) == 1, "not more often than a few times a second"
    seconds[0] += 1
    assert board.picture("hall")[0] == 41 and len(made) == 2


def test_an_event_is_shown_as_the_history_has_it(board):
    """What a person has said of it is not in the one that the sink has kept."""
    event = event_of()
    board.history.begin(event, (), START)
    board.history.judge(event.id, "right")
    board.tell(event, "new")
    assert board.state()["on"][0]["verdict"] == "right"
    board.history.end(event.id, START + timedelta(seconds=9), False, START)
    board.tell(event, "end")
    assert board.state()["on"] == []


def test_sources_come_go_and_pause(board):
    mark = board.state()["at"]
    board.source("garden", address="rtsp://u:hunter2@garden/s")
    board.source("hall", paused=True)
    board.remove("kitchen")
    board.remove("kitchen")
    told = heard(board, mark)
    assert [m["source"] for m in told if m["kind"] == "gone"] == ["kitchen"] and "hunter2" not in json.dumps(told)
    assert board.names == ["hall", "garden"] and source_of(board)["link"] == "paused"


def test_many_threads_at_once(board):
    cameras = [Camera(board, name) for name in ("hall", "kitchen")]
    mark, lost, ended = board.state()["at"], [], threading.Event()
    columns = {"hall": [], "kitchen": []}

    def look() -> None:
        nonlocal mark
        while not (ended.is_set() and not lost and board.after(mark)[1] == []):
            found = board.after(mark)
            if found is None:
                return lost.append(mark)
            mark, texts = found
            for message in map(json.loads, texts):
                if message["kind"] == "scores":
                    columns[message["source"]].append(message["column"])
            board.state()
            board.picture("hall")

    def decide(camera) -> None:
        for _ in range(300):
            camera.show(0.1, 0.2, 0.3)

    threads = [threading.Thread(target=decide, args=(camera,)) for camera in cameras]
    reader = threading.Thread(target=look)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join(20)
    ended.set()
    reader.join(20)
    assert not reader.is_alive() and not lost
    assert columns == {"hall": list(range(300)), "kitchen": list(range(300))}
