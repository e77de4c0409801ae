"""Clips of events: what is in them, what bounds them, and what happens where they cannot be written."""

import json
import os
from datetime import datetime, timedelta
from time import monotonic

import av
import cv2
import numpy as np
import pytest

from lstr.pipelines.watching import clips as clips_of
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from tests.support.processes import limit_file_size
from tests.support.videos import write_video
from tests.support.waiting import wait_until

assert_equal = np.testing.assert_array_equal

RATE, SECONDS = 10, 20


def film(path, size=(64, 48), noise=False):
    """20 seconds of greys that grow by 7 each frame, with a key frame each second."""
    options = {"g": "10", "bf": "0", "preset": "ultrafast"}
    return write_video(path, range(0, SECONDS * 600, 600 // RATE), size, options=options, noise=noise)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    return {
        "small": film(folder / "small.ts"),
        "large": film(folder / "large.ts", (96, 80)),
        "noise": film(folder / "noise.ts", (160, 128), noise=True),
    }


class Camera:
    """Feeds a film's packets to the ring of a source, as if each had come when it is shown; its start is `began`."""

    def __init__(self, clips: Clips, path, source: str = "hall", ago: float = 10.0):
        self._container, self.source = av.open(str(path)), source
        self._stream = self._container.streams.video[0]
        self._packets = [packet for packet in self._container.demux(self._stream) if packet.size]
        self._take = clips.ring(source)
        self.began, self.wall = monotonic() - ago, datetime.now().astimezone() - timedelta(seconds=ago)

    def send(self, begin: float, end: float) -> "Camera":
        for packet in self._packets[round(begin * RATE) : round(end * RATE)]:
            self._take(packet, self._stream, self.began + float(packet.pts * packet.time_base - self._first))
        return self

    @property
    def _first(self) -> float:
        return float(self._packets[0].pts * self._packets[0].time_base)

    def event(self, start: float, decided: float) -> WatchedEvent:
        at = [self.wall + timedelta(seconds=second) for second in (start, decided)]
        return WatchedEvent(new_id(at[0]), self.source, "fall", *at, 0.7, 0.9, at[1])

    def ended(self, event: WatchedEvent, end: float, **more) -> WatchedEvent:
        at = self.wall + timedelta(seconds=end)
        return WatchedEvent(**vars(event) | {"end": at, "seen": at} | more)


@pytest.fixture
def opened(tmp_path, history):
    """Open clips: opened(**config) -> clips, and what they say in `said`."""
    every = []

    def open_clips(**config) -> Clips:
        said = []
        clips = Clips(tmp_path / "clips", ClipsConfig(**{"before": 2.0, "after": 1.0} | config), history, said.append)
        clips.said = said
        every.append(clips)
        return clips

    yield open_clips
    for clips in every:
        clips.close()


def begun(clips, history, event) -> WatchedEvent:
    history.begin(event, [], event.decided)
    clips.begin(event)
    return event


def whole(clips, history, camera, start=5.2, decided=6.0, end=7.0, pictured=True, **more) -> WatchedEvent:
    """An event of which all is there; its clip is written."""
    event = begun(clips, history, camera.event(start, decided))
    clips.end(camera.ended(event, end, **more))
    wait_until(lambda: not clips._recordings)
    wait_until(lambda: clips.image(event.id) or not pictured)
    return event


def frames_of(path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def names_in(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_an_event_has_film_picture_and_what_is_to_be_known(films, opened, history):
    clips = opened()
    camera = Camera(clips, films["small"]).send(0, 9.5)
    event = whole(clips, history, camera)
    source = frames_of(films["small"])
    shown = frames_of(clips.path(event.id))
    first = next(n for n, frame in enumerate(source) if np.array_equal(frame, shown[0]))
    assert first == 30, "the key frame before 5.2 s less two seconds"
    assert len(shown) in (50, 51) and all(np.array_equal(a, b) for a, b in zip(shown, source[first:], strict=False))
    about = json.loads(clips.path(event.id).with_suffix(".json").read_text())
    assert abs(about["event_at"] - 2.2) < 0.11 and abs(about["decided_at"] - 3.0) < 0.11
    assert about["event"]["id"] == event.id and about["codec"] == about["source_codec"] == "h264"
    assert abs((datetime.fromisoformat(about["start"]) - camera.wall).total_seconds() - 3.0) < 0.11
    picture = cv2.imread(str(clips.image(event.id)))
    assert picture.shape == (48, 64, 3) and abs(int(picture[9, 9, 0]) - int(source[60][9, 9, 0])) <= 8
    kept = history.find(event.id)
    assert (kept.clip, kept.picture) == (f"{event.id}.mp4", f"{event.id}.jpg")
    assert names_in(clips.path(event.id).parent) == [f"{event.id}.{end}" for end in ("jpg", "json", "mp4")]
    assert clips.size == sum(path.stat().st_size for path in clips.path(event.id).parent.iterdir())
    for wrong in ("../" + event.id, event.id + "\n", "", "a/b", event.id[:-1] + "g"):
        assert clips.path(wrong) is None and clips.image(wrong) is None


def test_an_action_that_is_told_late_has_its_beginning_in_its_clip(films, opened, history, monkeypatch):
    """Its rule lets it last for a while first; the packets of its beginning had gone by then."""
    monkeypatch.setattr(clips_of, "GRACE_S", 0.1)
    clips = opened(max_seconds=60.0)
    first = {}
    for name, late in (("hall", 0.0), ("yard", 17.0)):
        camera = Camera(clips, films["small"], name, ago=20.0)
        clips.set_delay(name, late)
        event = whole(clips, history, camera.send(0, 19.5), start=2.2, decided=19.2, end=19.3)
        shown = frames_of(clips.path(event.id))[0]
        first[name] = next(n for n, frame in enumerate(frames_of(films["small"])) if np.array_equal(frame, shown))
    assert first["yard"] == 0 < first["hall"]


@pytest.mark.parametrize(("longest", "sent", "frames"), [(3.0, 9.5, (30, 31)), (4.2, 6.1, (31,))])
def test_a_long_event_has_a_clip_of_its_beginning(films, opened, history, monkeypatch, longest, sent, frames):
    """Where the camera sends on, and where nothing comes for longer than the longest clip."""
    monkeypatch.setattr(clips_of, "GRACE_S", 0.1)
    clips = opened(max_seconds=longest)
    camera = Camera(clips, films["small"]).send(0, sent)
    event = begun(clips, history, camera.event(5.2, 6.0))
    wait_until(lambda: not clips._recordings)
    assert len(frames_of(clips.path(event.id))) in frames and history.find(event.id).end is None
    clips.end(camera.ended(event, 8))


@pytest.mark.parametrize(("size", "away"), [("large", 0), ("small", 44)])
def test_a_clip_ends_where_the_camera_is_lost_or_comes_back_with_another_size(films, opened, history, size, away):
    clips = opened(max_seconds=100.0)
    camera, again = Camera(clips, films["small"], ago=10.0 + away).send(0, 6.5), Camera(clips, films[size])
    event = begun(clips, history, camera.event(5.2, 6.0))
    wait_until(lambda: clips._recordings[event.id].file)
    again.send(7, 9.5)
    clips.end(camera.ended(event, away + 8.0))
    later = whole(clips, history, again, 7.6, 8.0, 8.2)
    source, large = frames_of(films["small"]), frames_of(films[size])
    assert_equal(frames_of(clips.path(event.id)), source[30:65])
    shown = frames_of(clips.path(later.id))
    assert len(shown) > 10
    assert_equal(shown, large[70 : 70 + len(shown)])
    seconds = [json.loads(clips.path(one.id).with_suffix(".json").read_text())["seconds"] for one in (event, later)]
    assert seconds[0] < 3.7 and seconds[1] < 2.7 and clips.said == [], "no frame stands still"


def configure(clips: Clips, max_bytes: int) -> None:
    clips.config = ClipsConfig(before=2.0, after=1.0, max_bytes=max_bytes)
    clips._woken.set()


def test_the_oldest_go_first_and_never_one_that_is_written(films, opened, history):
    clips = opened()
    camera = Camera(clips, films["noise"]).send(0, 9.5)
    events = [whole(clips, history, camera, start=4 + n / 10) for n in range(3)]
    events.sort(key=lambda event: event.id)
    each = clips.size / 3
    written = begun(clips, history, camera.event(3.0, 6.0))
    wait_until(lambda: clips._recordings[written.id].file)
    configure(clips, int(2.6 * each))
    wait_until(lambda: not history.find(events[1].id).clip)
    assert clips.path(events[0].id) is clips.path(events[1].id) is None
    assert clips.path(events[2].id) and clips._recordings
    assert history.find(events[0].id).clip == history.find(events[1].id).picture == ""
    clips.end(camera.ended(written, 7))
    wait_until(lambda: not clips._recordings)
    assert clips.path(written.id) and clips.path(events[2].id), "older, and it was being written"
    assert clips.size == sum(path.stat().st_size for path in clips.folder.iterdir()) <= 2.6 * each
    configure(clips, int(1.5 * each))
    wait_until(lambda: not clips.path(written.id))
    clips.remove([events[2].id])
    wait_until(lambda: clips.size == 0)
    assert names_in(clips.folder) == []


def test_what_a_kill_left_is_put_right(films, opened, history, tmp_path):
    clips = opened()
    camera = Camera(clips, films["small"]).send(0, 9.5)
    unnamed, gone, foreign = (whole(clips, history, camera, start=start) for start in (4.0, 5.0, 5.5))
    clips.close()
    folder = tmp_path / "clips"
    history.attach(unnamed.id, clip="")
    clips.path(gone.id).unlink()
    assert not history.delete_old(999_999 * 86_400.0), "for ever: a date so long ago is none"
    for suffix in (".mp4", ".json", ".jpg"):
        (folder / f"{foreign.id}{suffix}").rename(folder / f"{new_id(camera.wall)}{suffix}")
    (folder / ".20260101T000000-00000000.mp4.tmp-0a0b0c0d").write_bytes(b"half")
    (folder / "notes.txt").write_text("a person's own")
    again = opened()
    wait_until(lambda: history.find(unnamed.id).clip and not history.find(foreign.id).picture)
    wait_until(lambda: not history.find(gone.id).clip)
    assert history.find(gone.id).picture
    kept = [f"{unnamed.id}.jpg", f"{unnamed.id}.json", f"{unnamed.id}.mp4", f"{gone.id}.jpg", f"{gone.id}.json"]
    assert names_in(folder) == sorted([*kept, "notes.txt"])
    assert again.size == sum((folder / name).stat().st_size for name in kept)


def test_a_full_disk_stops_clips_and_says_so_once(films, opened, history):
    clips = opened()
    camera = Camera(clips, films["noise"]).send(0, 9.5)
    with limit_file_size(300_000):  # the history is smaller, a film of noise larger
        events = [whole(clips, history, camera, start=start) for start in (4.0, 5.0)]
    assert len(clips.said) == 1
    assert [clips.path(event.id) for event in events] == [None, None] and len(history.events()) == 2
    assert all(name.endswith(".jpg") for name in names_in(clips.folder)), "nothing is left of them"
    later = whole(clips, history, camera)
    assert frames_of(clips.path(later.id)) and len(clips.said) == 2


def test_closing_ends_the_films_that_are_written(films, opened, history):
    clips = opened()
    cameras = [Camera(clips, films["noise"], name).send(0, 7) for name in ("hall", "yard")]
    events = [begun(clips, history, camera.event(5.2, 6.0)) for camera in cameras]
    before = monotonic()
    clips.close()
    assert monotonic() - before < 3
    assert all(len(frames_of(clips.path(event.id))) == 40 for event in events)
    clips.begin(cameras[0].event(5.2, 6.0))
    assert not clips._recordings
