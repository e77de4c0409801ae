"""What the kinds of `lstr.metrics.event_errors` are called above the columns of tables, and of single events."""

from lstr.metrics.event_errors import EDGE, EDGES, JudgedEvents
from lstr.metrics.event_errors import OF_DETECTIONS as DETECTION_KINDS
from lstr.metrics.event_errors import OF_LABELS as LABEL_KINDS

OF_LABELS = {
    "correct": "correct",
    "edges": "edge off",
    "fragmented": "in pieces",
    "merged": "merged",
    "fragmented_merged": "both",
    "wrong_action": "wrong action",
    "deleted": "nothing",
}
OF_DETECTIONS = {
    "correct": "correct",
    "edges": "edge off",
    "fragment": "piece of one",
    "merging": "several as one",
    "fragment_merging": "both",
    "wrong_action": "wrong action",
    "inserted": "nothing there",
}
LATE, EARLY = "late", "early"
"""What an edge that is off is called where one event is told of: by its start"""
OF_FALSE_ALARMS = {kind: name for kind, name in OF_DETECTIONS.items() if kind != "correct"}
"""Without those that are never false alarms"""


def words_of(judged: JudgedEvents) -> tuple[list[str], list[str]]:
    """What each label and each detection of an action is called, in their order; "" of a detection that is left out."""
    later = dict(zip(map(tuple, judged.pairs.tolist()), judged.edges[:, 0].tolist(), strict=True))
    of_labels = {label: start for (label, _), start in later.items()}
    of_detections = {detection: start for (_, detection), start in later.items()}
    labels = [
        _by_start(of_labels[at]) if kind == EDGES else OF_LABELS[LABEL_KINDS[kind]]
        for at, kind in enumerate(judged.labels.tolist())
    ]
    detections = [
        "" if kind < 0 else _by_start(of_detections[at]) if kind == EDGES else OF_DETECTIONS[DETECTION_KINDS[kind]]
        for at, kind in enumerate(judged.detected.tolist())
    ]
    return labels, detections


def _by_start(later: float) -> str:
    if abs(later) <= EDGE:
        return OF_LABELS["edges"]  # it is the end that is off
    return LATE if later > 0 else EARLY
