"""Messages in Frigate's schema, so that what listens to `frigate/events` needs another topic and nothing else."""

from typing import Any

from lstr.pipelines.watching.event import WatchedEvent


def frigate_message(phase: str, before: WatchedEvent, after: WatchedEvent) -> dict[str, Any]:
    """What Frigate would publish: `type` (new, update or end), the event as it was published last, and as it is now."""
    return {"type": phase, "before": _state(before), "after": _state(after)}


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
