"""Data of the scored videos for the page of an evaluation: video, labels, judged detections, and score curves."""

import base64
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.event_errors import judge_events
from lstr.pipelines.evaluation.analysis import Findings
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.pipelines.evaluation.tables import words_of
from lstr.pipelines.pages.figure import thinned
from lstr.pipelines.pages.palette import colours_of
from lstr.pipelines.pages.proxy import find_ahead, find_playable, video_url

FOUND, MISSED, FALSE, EXCLUDED = "found", "missed", "false", "excluded"
# Maximum duration of video to copy for browsers; beyond it the page links to the originals
COPIED_SECONDS = 600
# Points per curve, and of all curves of a page together, so that a page with hundreds of videos opens quickly
MOST_POINTS, LEAST_POINTS, ALL_POINTS = 1000, 100, 2_000_000
# Codes for probability 1 and for a chunk without a score
FULL_SCALE, NO_SCORE = 254, 255

Entry = tuple[Any, ...]
ShownVideo = dict[str, Any]


def describe_watching(findings: Findings, folder: Path) -> dict[str, Any]:
    """Return the data of each checkpoint's videos for the page in `folder`, videos with most errors first.

    Copies of videos that browsers do not play are written to `folder`. Raises OutputError.

    Returns:
        `held_out`: whether all are testing videos that no checkpoint was trained on. `models`: `name` and `videos`,
        each with `id`, `duration`, `chunks`, `begin` (in seconds, if not 0), `video` (its URL, or None), `ahead`
        (offset of the player's clock in seconds), `labels` (class, start, end, found or missed, error type),
        `detections` (class, start, end, verdict, score, time of the report, error type) and `curves` of classes with
        labels or detections: the highest score of each interval, as base64 of uint8. Error types are from
        `tables.words_of`.
    """
    labels = findings.judged[0].split.labels
    classes = labels.classes
    models: list[dict[str, Any]] = [{"name": entry.name, "videos": _judged_videos(entry)} for entry in findings.judged]
    n_curves = sum(len(_lanes(video)) for model in models for video in model["videos"])
    most = max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, n_curves)))
    addresses: dict[str, ShownVideo] = {}
    for entry, model in zip(findings.judged, models, strict=True):
        scores = dict(zip((video.id for video in entry.split.videos), entry.scores, strict=True))
        model["videos"].sort(
            key=lambda video: -sum(one[3] in (MISSED, FALSE) for one in (*video["labels"], *video["detections"]))
        )
        for video in model["videos"]:
            rows = scores[video["id"]]
            video["curves"] = {c: encode_curve(rows[:, c], most) for c in _lanes(video) if len(rows)}
        seconds = COPIED_SECONDS
        for video in model["videos"]:
            if video["id"] not in addresses:
                addresses[video["id"]] = {"video": None}
                record = entry.split.folder.read_record(video["id"]) or {}
                source, is_same = Path(str(record.get("source") or "")), False
                with suppress(OSError):  # the record may contain an invalid file name
                    is_same = source.is_file() and source.stat().st_size == record.get("bytes")
                if is_same:
                    copy = folder / "videos" / video["id"]
                    playable = (find_playable(source, copy.parent, copy.name) if seconds > 0 else None) or source
                    seconds -= 0 if playable == source else video["duration"]
                    addresses[video["id"]] = {
                        "video": video_url(playable, folder),
                        "ahead": find_ahead(source, playable),
                    }
            video.update(addresses[video["id"]])
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    held_out = all(labels.videos[video["id"]].subset == "testing" for model in models for video in model["videos"])
    held_out = held_out and not any(entry.document.get("learnt_from") for entry in findings.judged)
    shown = {"classes": list(classes), "actions": actions, "colours": colours_of(classes)}
    return {**shown, "held_out": held_out, "models": models}


def encode_curve(curve: np.ndarray, most: int) -> str:
    """Encode scores (L,), L at least 1, as base64 of uint8: the maximum of each of at most `most` equal intervals."""
    _, values = thinned(np.asarray(curve, np.float64), 1.0, most)
    codes = np.where(np.isnan(values), NO_SCORE, np.rint(np.clip(values, 0, 1) * FULL_SCALE))
    return base64.b64encode(codes[1:].astype(np.uint8).tobytes()).decode("ascii")


def _judged_videos(entry: Evaluation) -> list[ShownVideo]:
    split = entry.split
    classes, shown = split.labels.classes, []
    for video, rows, events in zip(split.videos, entry.scores, entry.events, strict=True):
        labels: list[Entry] = []
        detections: list[Entry] = []
        for label, one in judge_events(events, classes).items():
            place = classes.index(label)
            label_kinds, detection_kinds = words_of(one)
            of_labels = [FOUND if found else MISSED for found in one.found]
            of_detections = [
                EXCLUDED if kind < 0 else FALSE if false else FOUND
                for kind, false in zip(one.detected, one.false, strict=True)
            ]
            labels += [
                (place, *map(float, span), verdict, kind)
                for span, verdict, kind in zip(one.truth, of_labels, label_kinds, strict=True)
            ]
            announced = zip(events.detections, events.announced or (), strict=True)
            own = [(segment, time) for segment, time in announced if segment.label == label]
            detections += [
                (place, segment.start, segment.end, verdict, segment.score, time, kind)
                for (segment, time), verdict, kind in zip(own, of_detections, detection_kinds, strict=True)
            ]
        described: ShownVideo = {"id": video.id, "duration": events.seconds, "chunks": len(rows), "labels": labels}
        begin = {"begin": float(split.clock.offset)} if split.clock.offset else {}
        shown.append({**described, **begin, "detections": detections})
    return shown


def _lanes(video: Mapping[str, Any]) -> list[int]:
    """Return the classes with a label or a detection, in order."""
    return sorted({entry[0] for entry in (*video["labels"], *video["detections"])})
