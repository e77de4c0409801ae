"""Messages in Frigate's schema, so that what listens to `frigate/events` needs another topic and nothing else."""

from dataclasses import replace
from typing import Any

from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import Notice


def frigate_message(notice: Notice) -> dict[str, Any]:
    """What Frigate would publish for a notice: `type` (new or end), and the event `before` and `after`."""
    going_on = replace(notice.event, end=None)
    after = going_on if notice.phase == "new" else notice.event
    return {"type": notice.phase, "before": _state(going_on), "after": _state(after)}


def _state(event: WatchedEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "camera": event.source,
        "frame_time": event.seen.timestamp(),
        "label": event.action,
        "sub_label": None,
        "start_time": event.start.timestamp(),
        "end_time": event.end.timestamp() if event.end else None,
        "score": round(event.score, 4),
        "top_score": round(event.top_score, 4),
        "false_positive": False,
        "active": event.end is None,
        "stationary": False,
        "zones": [],
        "current_zones": [],
        "entered_zones": [],
        "has_clip": bool(event.clip),
        "has_snapshot": bool(event.picture),
    }
