"""Clips of events: their content, their limits, and disks that cannot be written."""

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic

import av
import cv2
import numpy as np
import pytest

from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.watching import clips as clips_module
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from tests.support.processes import limit_file_size
from tests.support.videos import write_video
from tests.support.waiting import wait_until
from tests.support.watching import event_of

assert_equal = np.testing.assert_array_equal

RATE, SECONDS = 10, 20


def write_film(path, size=(64, 48), noise=False):
    """Write 20 seconds of greys that grow by 7 each frame, with a key frame each second."""
    options = {"g": "10", "bf": "0", "preset": "ultrafast"}
    return write_video(path, range(0, SECONDS * 600, 600 // RATE), size, options=options, noise=noise)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder, sizes = tmp_path_factory.mktemp("films"), {"small": (64, 48), "large": (96, 80), "noise": (160, 128)}
    return {name: write_film(folder / f"{name}.ts", size, name == "noise") for name, size in sizes.items()}


class Camera:
    """Feeds the packets of a film to the ring of a source, as if they had arrived since `ago` s before the opening."""

    def __init__(self, clips: Clips, path, source: str = "hall", ago: float = 10.0):
        self._container, self.source = av.open(str(path)), source
        self._stream = self._container.streams.video[0]
        self._packets = [packet for packet in self._container.demux(self._stream) if packet.size]
        self._take = clips.ring(source)
        self._began, self.wall = clips.opened - ago, clips.opened_wall - timedelta(seconds=ago)

    def send(self, begin: float, end: float) -> "Camera":
        first = self._packets[0].pts
        for packet in self._packets[round(begin * RATE) : round(end * RATE)]:
            self._take(packet, self._stream, self._began + float((packet.pts - first) * packet.time_base))
        return self

    def event(self, start: float, decided: float) -> WatchedEvent:
        begin, at = (self.wall + timedelta(seconds=second) for second in (start, decided))
        return event_of(self.source, start=begin, decided=at, seen=at)

    def end(self, event: WatchedEvent, end: float) -> WatchedEvent:
        at = self.wall + timedelta(seconds=end)
        return replace(event, end=at, seen=at)


@pytest.fixture
def open_clips(tmp_path, history):
    """Open the clips of a folder: open_clips(**limits) -> clips; `messages` are the lines of the log."""
    opened = []

    def open_folder(**limits) -> Clips:
        messages, config = [], ClipsConfig(**{"before": 2.0, "after": 1.0} | limits)
        clips = Clips(tmp_path / "clips", config, history, messages.append)
        clips.messages, clips.history = messages, history
        # one time for all cameras, because opening a film takes a while on a busy machine
        clips.opened, clips.opened_wall = monotonic(), datetime.now().astimezone()
        opened.append(clips)
        return clips

    yield open_folder
    for clips in opened:
        clips.close()


def begin(clips, event: WatchedEvent) -> WatchedEvent:
    clips.history.begin(event, [])
    clips.begin(event)
    return event


def record(clips, camera: Camera, start=5.2, decided=6.0, end=7.0) -> WatchedEvent:
    """Record an event from its start to its end, until the history has its clip and its image."""
    event = begin(clips, camera.event(start, decided))
    clips.end(camera.end(event, end))
    wait_until(lambda: all(files_of(clips, event)))
    return event


def files_of(clips, event: WatchedEvent) -> tuple[str, str]:
    stored = clips.history.find(event.id)
    return stored.clip, stored.picture


def frames_of(path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def size_of(folder) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_files_of_an_event(films, open_clips):
    clips = open_clips()
    camera = Camera(clips, films["small"]).send(0, 9.5)
    event = record(clips, camera)
    source, frames = frames_of(films["small"]), frames_of(clips.path(event.id))
    # frame 30 is the key frame before 5.2 s less two seconds
    assert len(frames) in (50, 51)
    assert_equal(frames, source[30 : 30 + len(frames)])
    about = json.loads(clips.path(event.id).with_suffix(".json").read_text())
    assert abs(about["event_at"] - 2.2) < 0.11 and abs(about["decided_at"] - 3.0) < 0.11
    assert about["event"]["id"] == event.id and about["codec"] == about["source_codec"] == "h264"
    assert abs((datetime.fromisoformat(about["start"]) - camera.wall).total_seconds() - 3.0) < 0.11
    image = cv2.imread(str(clips.image(event.id)))
    assert image.shape == (48, 64, 3) and abs(int(image[9, 9, 0]) - int(source[60][9, 9, 0])) <= 8
    assert files_of(clips, event) == (f"{event.id}.mp4", f"{event.id}.jpg")
    assert {*os.listdir(clips.folder)} == {f"{event.id}.{end}" for end in ("jpg", "json", "mp4")}
    assert clips.size == size_of(clips.folder)


def test_a_clip_has_the_beginning_of_an_action_with_a_long_delay(films, open_clips, monkeypatch):
    monkeypatch.setattr(clips_module, "GRACE_S", 0.1)
    clips, source, begins_first = open_clips(max_length=60.0), frames_of(films["small"]), {}
    for name, delay in (("hall", 0.0), ("yard", 17.0)):
        camera = Camera(clips, films["small"], name, ago=20.0)
        clips.set_delay(name, delay)
        event = record(clips, camera.send(0, 19.5), start=2.2, decided=19.2, end=19.3)
        begins_first[name] = np.array_equal(frames_of(clips.path(event.id))[0], source[0])
    assert begins_first == {"hall": False, "yard": True}


@pytest.mark.parametrize(("max_length", "sent", "frames"), [(3.0, 9.5, (30, 31)), (4.2, 6.1, (31,))])
def test_a_long_event_has_a_clip_of_its_beginning(films, open_clips, history, monkeypatch, max_length, sent, frames):
    """Both if the camera continues to send, and if nothing comes for longer than the longest clip."""
    monkeypatch.setattr(clips_module, "GRACE_S", 0.1)
    clips = open_clips(max_length=max_length)
    camera = Camera(clips, films["small"]).send(0, sent)
    event = begin(clips, camera.event(5.2, 6.0))
    wait_until(lambda: history.find(event.id).clip)
    assert len(frames_of(clips.path(event.id))) in frames and history.find(event.id).end is None
    clips.end(camera.end(event, 8))


@pytest.mark.parametrize(("size", "outage"), [("large", 0), ("small", 44)])
def test_a_clip_ends_with_an_outage_or_a_new_frame_size(run, films, open_clips, history, tmp_path, size, outage):
    """The time of the outage is not in the clips, so it is not background in their labels."""
    clips = open_clips(max_length=100.0)
    camera, later_camera = Camera(clips, films["small"], ago=10.0 + outage).send(0, 6.5), Camera(clips, films[size])
    event = begin(clips, camera.event(5.2, 6.0))
    wait_until(lambda: clips._recordings[event.id].file)
    later_camera.send(7, 9.5)
    ended = camera.end(event, outage + 8.0)
    history.update(ended)
    clips.end(ended)
    later = record(clips, later_camera, 7.6, 8.0, 8.2)
    wait_until(lambda: history.find(event.id).clip)
    assert_equal(frames_of(clips.path(event.id)), frames_of(films["small"])[30:65])
    frames = frames_of(clips.path(later.id))
    assert len(frames) > 10 and clips.messages == []
    assert_equal(frames, frames_of(films[size])[70 : 70 + len(frames)])
    history.judge(event.id, "right")
    history.judge(later.id, "wrong")
    run("events", tmp_path, "--as-labels", tmp_path / "labels.json")
    videos = read_label_file(tmp_path / "labels.json").videos
    (segment,) = videos[event.id].segments
    assert 3.4 < segment.end == videos[event.id].duration < 3.7 and segment.start == pytest.approx(2.2, abs=0.11)
    (segment,) = videos[later.id].segments  # the end of the first event
    assert segment.start == 0 and segment.end == pytest.approx(1.0, abs=0.11) and videos[later.id].duration < 2.7


def test_the_oldest_clips_are_deleted_but_none_that_is_written(films, open_clips, history):
    def set_limit(max_size: float) -> None:
        clips.config = ClipsConfig(before=2.0, after=1.0, max_size=int(max_size))
        clips._woken.set()

    clips = open_clips()
    camera = Camera(clips, films["noise"]).send(0, 9.5)
    first, second, third = sorted((record(clips, camera, start=4 + n / 10) for n in range(3)), key=lambda e: e.id)
    size = clips.size / 3
    written = begin(clips, camera.event(3.0, 6.0))
    wait_until(lambda: clips._recordings[written.id].file and history.find(written.id).picture)
    set_limit(2.6 * size)
    wait_until(lambda: files_of(clips, second) == ("", ""))
    assert clips.path(first.id) is clips.path(second.id) is None and files_of(clips, first) == ("", "")
    assert clips.path(third.id) and clips._recordings
    clips.end(camera.end(written, 7))
    wait_until(lambda: history.find(written.id).clip)
    assert clips.path(written.id) and clips.path(third.id), "older, and it was being written"
    assert clips.size == size_of(clips.folder) <= 2.6 * size
    set_limit(1.5 * size)
    wait_until(lambda: not clips.path(written.id))
    clips.remove([third.id])
    wait_until(lambda: clips.size == 0)
    assert os.listdir(clips.folder) == []


def test_folder_and_history_agree_after_a_kill(films, open_clips, history):
    clips = open_clips()
    camera, folder = Camera(clips, films["small"]).send(0, 9.5), clips.folder
    unnamed, deleted, unknown = (record(clips, camera, start=start) for start in (4.0, 5.0, 5.5))
    clips.close()
    history.attach(unnamed.id, clip="")
    clips.path(deleted.id).unlink()
    for suffix in (".mp4", ".json", ".jpg"):
        (folder / f"{unknown.id}{suffix}").rename(folder / f"{new_id(camera.wall)}{suffix}")
    (folder / ".20260101T000000-00000000.mp4.tmp-0a0b0c0d").write_bytes(b"half")
    (folder / "notes.txt").write_text("a file of another program")
    clips = open_clips()
    wait_until(lambda: all(files_of(clips, unnamed)) and not any(files_of(clips, unknown)))
    wait_until(lambda: files_of(clips, deleted) == ("", f"{deleted.id}.jpg"))
    names = {f"{unnamed.id}.jpg", f"{unnamed.id}.json", f"{unnamed.id}.mp4", f"{deleted.id}.jpg", f"{deleted.id}.json"}
    assert {*os.listdir(folder)} == {*names, "notes.txt"}
    assert clips.size == sum((folder / name).stat().st_size for name in names)


def test_a_full_disk_stops_clips_and_is_logged_once(films, open_clips, history):
    clips = open_clips()
    camera = Camera(clips, films["noise"]).send(0, 9.5)
    with limit_file_size(300_000):  # larger than the history, smaller than a clip of noise
        events = [begin(clips, camera.event(start, 6.0)) for start in (4.0, 5.0)]
        wait_until(lambda: not clips._recordings and clips.messages)
    assert len(clips.messages) == 1 and len(history.events()) == 2
    assert not any(clips.path(event.id) for event in events)
    assert all(name.endswith(".jpg") for name in os.listdir(clips.folder)), "partial clips are deleted"
    later = record(clips, camera)
    assert frames_of(clips.path(later.id))
    wait_until(lambda: len(clips.messages) == 2)


def test_closing_completes_open_clips(films, open_clips, monkeypatch):
    """It waits for them and not until its time limit, which is longer here, for a busy machine."""
    monkeypatch.setattr(clips_module, "CLOSE_S", 60)
    clips = open_clips()
    cameras = [Camera(clips, films["noise"], name).send(0, 7) for name in ("hall", "yard")]
    events = [begin(clips, camera.event(5.2, 6.0)) for camera in cameras]
    before = monotonic()
    clips.close()
    assert monotonic() - before < 50
    assert all(len(frames_of(clips.path(event.id))) == 40 for event in events)
    clips.begin(cameras[0].event(5.2, 6.0))
    assert not clips._recordings
