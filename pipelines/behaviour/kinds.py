"""What the kinds of `lstr.metrics.event_errors` are called above the columns of tables."""

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
OF_FALSE_ALARMS = {kind: name for kind, name in OF_DETECTIONS.items() if kind != "correct"}
"""Without those that are never false alarms"""
