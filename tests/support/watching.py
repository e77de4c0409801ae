"""Actions and events of a service, and a dashboard that shows two cameras."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from lstr.extractors.video.frames import Chunk
from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.watching.dashboard import Dashboard, DashboardSink
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History

ACTIONS = ("Background", "fall", "wave")
HOSTILE = "<img src=x onerror=alert(1)>"
START = datetime(2026, 5, 31, 14, 3, 12).astimezone()


def always_active(model: Path) -> str:
    """Return the tables in which every action of a model is always active, which delays nothing."""
    table = '[actions."{}"]\non = 0.0\noff = 0.0\nhighest = false\nmin_length = 0.25\n'
    return "".join(map(table.format, load_checkpoint(model).classes[1:]))


def decision_of(chunk: int, scores, at: datetime | None = None, classes=ACTIONS) -> Decision:
    scores = np.array(scores, np.float32)
    best = int(scores.argmax())
    return Decision(chunk, (chunk + 1) / 4, classes[best], float(scores[best]), [], 120.0, [], scores, at=at)


def event_of(source: str = "hall", action: str = "fall", start: datetime = START, **values) -> WatchedEvent:
    """Return an active event that was decided and last seen at its start."""
    defaults = {"id": new_id(start), "decided": start, "score": 0.9, "top_score": 0.9, "seen": start}
    return WatchedEvent(source=source, action=action, start=start, **defaults | values)


def recent_event(ago: float = 4.0, **values) -> WatchedEvent:
    """Return an event that began `ago` seconds before now and is still active."""
    now = datetime.now().astimezone()
    return event_of(start=now - timedelta(seconds=ago), **{"action": "falling", "seen": now} | values)


class Camera:
    """A source of a dashboard; `show` adds its next decision, with a frame."""

    def __init__(self, dashboard: Dashboard, name: str, classes=ACTIONS):
        self.dashboard, self.classes, self.chunk = dashboard, classes, 0
        self.status = Status(name, decided=0)
        self.sink = DashboardSink(dashboard)
        self.opened = Opened(name, self.status, classes, refresh=lambda: None, origin=f"rtsp://u:hunter2@{name}/s")
        self.sink.open(self.opened)

    def show(self, *scores: float, at: datetime | None = None, frame=None) -> None:
        frames = np.full((6, 48, 64, 3), 90, np.uint8) if frame is None else frame[None]
        self.dashboard.take_frame(self.opened.id, Chunk(self.chunk, (self.chunk + 1) / 4, frames))
        self.status.decided += 1
        self.status.latencies_ms.append(120.0)
        self.sink.take(decision_of(self.chunk, scores, at or START + timedelta(seconds=self.chunk / 4), self.classes))
        self.chunk += 1


def count_pending(history: History) -> dict[str, int]:
    """Return the numbers of pending notices by channel."""
    return dict(history._read("SELECT channel, count(*) FROM notices WHERE delivered IS NULL GROUP BY channel"))
