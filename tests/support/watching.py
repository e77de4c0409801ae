"""A dashboard with what two cameras show, as a service fills it."""

from datetime import datetime, timedelta

import numpy as np

from lstr.extractors.video.frames import Chunk
from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.pipelines.watching.dashboard import Dashboard, DashboardSink
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.timeline import Thresholds

ACTIONS = ("Background", "fall", "wave")
HOSTILE = "<img src=x onerror=alert(1)>"
START = datetime(2026, 5, 31, 14, 3, 12).astimezone()


def decision_of(chunk: int, scores, at: datetime | None = None, classes=ACTIONS) -> Decision:
    scores = np.array(scores, np.float32)
    best = int(scores.argmax())
    return Decision(chunk, (chunk + 1) / 4, classes[best], float(scores[best]), [], 120.0, [], scores, at=at)


def event_of(source: str = "hall", action: str = "fall", start: datetime = START, **more) -> WatchedEvent:
    values = {
        "decided": start + timedelta(seconds=1),
        "score": 0.8,
        "top_score": 0.9,
        "seen": start + timedelta(seconds=2),
    }
    return WatchedEvent(new_id(start), source, action, start, **values | more)


class Camera:
    """A source of a dashboard; `show` makes its next decision, with a frame."""

    def __init__(self, dashboard: Dashboard, name: str, classes=ACTIONS):
        self.dashboard, self.classes, self.chunk = dashboard, classes, 0
        self.status = Status(name, decided=0)
        self.sink = DashboardSink(dashboard)
        self.opened = Opened(name, self.status, classes, refresh=lambda: None, origin=f"rtsp://u:hunter2@{name}/s")
        self.sink.open(self.opened)

    def show(self, *scores: float, at: datetime | None = None, grey: int = 90, frame=None) -> None:
        frames = np.full((6, 48, 64, 3), grey, np.uint8) if frame is None else frame[None]
        self.dashboard.take_frame(self.opened.id, Chunk(self.chunk, (self.chunk + 1) / 4, frames))
        self.status.decided += 1
        self.status.latencies_ms.append(120.0)
        self.sink.take(decision_of(self.chunk, scores, at or START + timedelta(seconds=self.chunk / 4), self.classes))
        self.chunk += 1


def count_pending(history: History) -> dict[str, int]:
    """Numbers of pending notices by channel."""
    return dict(history._read("SELECT channel, count(*) FROM notices WHERE delivered IS NULL GROUP BY channel"))


def dashboard_of(folder, names=("hall", HOSTILE)) -> Dashboard:
    dashboard = Dashboard(History(folder / "history.sqlite"))
    for name in names:
        dashboard.update_source(name)
    dashboard.update_source(names[0], thresholds={"fall": Thresholds(0.6, 0.4)})
    return dashboard
