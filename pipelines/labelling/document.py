"""The file of a labels project: ActivityNet JSON, which `lstr learn` reads directly, with an object of our own.

Time that is neither labelled nor marked as empty is written as "Ambiguous", which is not used for training; in a
complete video it is background. Such segments are marked `"unlabelled": true` and are dropped when the file is read.
Proposals and decisions are in our own object only, so that no other reader takes them for labels.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from lstr.chunk import CLOCK, FEATURES_PER_SECOND
from lstr.errors import LabelsError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, labels_of, read_activitynet, runs
from lstr.pipelines.labelling.values import (
    NOTHING,
    RESERVED,
    About,
    Action,
    Label,
    Proposal,
    Search,
    State,
    Subject,
    change_of,
)

FORMAT = "lstr-labels/1"
# Name of our own object in the file
OURS = "lstr"
Span = tuple[float, float]


def to_document(state: State, durations: Mapping[str, float], stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the file.

    Args:
        state: The values. A video about which nothing is said is not written.
        durations: Seconds by video, if known.
        stamp: The journal and its revision, for our own object.
    """
    names = {key: action.name for key, action in state.actions.items()} | {NOTHING: BACKGROUND}
    has_subsets = any(about.subset for about in state.abouts.values())
    database, has_ambiguous = {}, False
    for video in sorted(state.videos()):
        about, labels = state.abouts.get(video, About()), state.labels.get(video, {})
        entry: dict[str, Any] = {"subset": about.subset or "training"} if has_subsets else {}
        if video in durations:
            entry["duration"] = durations[video]
        entry["complete"] = about.complete
        if about.comment:
            entry["comment"] = about.comment
        closed: list[dict[str, Any]] = []
        still_open: list[dict[str, Any]] = []
        for key, label in sorted(labels.items(), key=lambda pair: (pair[1].start, pair[1].end or 0.0, pair[0])):
            times = {"start": label.start} if label.end is None else {"segment": [label.start, label.end]}
            more = {name: text for name, text in (("subject", label.subject), ("comment", label.comment)) if text}
            marks = still_open if label.end is None else closed
            marks.append({"label": names[label.action], **times, "id": key, **more})
        unknown = find_unlabelled(labels.values(), about.complete, durations.get(video))
        has_ambiguous |= bool(unknown)
        closed += [{"label": AMBIGUOUS, "segment": [*span], "unlabelled": True} for span in unknown]
        entry["annotations"] = closed
        if still_open:
            entry["open"] = sorted(still_open, key=lambda mark: mark["id"])
        database[video] = entry
    ordered = state.ordered()
    classes = [BACKGROUND, *(action.name for _, action in ordered)]
    if has_ambiguous and AMBIGUOUS not in classes:
        classes.append(AMBIGUOUS)
    ours: dict[str, Any] = {
        "format": FORMAT,
        **stamp,
        "actions": [{"id": key, "name": action.name, "key": action.key} for key, action in ordered],
        "subjects": sorted(state.subjects, key=lambda name: (state.subjects[name].place, name)),
    }
    for video in sorted({*state.searches, *state.proposals}):
        held = [(key, p) for key, p in state.proposals.get(video, {}).items() if p.action in state.actions]
        found = []
        for key, p in sorted(held, key=lambda pair: (pair[1].start, pair[1].end, pair[0])):
            what = {"label": state.actions[p.action].name, "segment": [p.start, p.end], "state": p.state}
            found.append({**what, "peak": p.peak, "threshold": p.threshold, "model": p.model, "id": key})
        searched = {"searched_by": state.searches[video].model} if video in state.searches else {}
        if searched or found:
            ours.setdefault("proposals", {})[video] = {**searched, "found": found}
    return {"version": "lstr labels 1", "classes": classes, OURS: ours, "database": database}


def find_unlabelled(labels: Iterable[Label], complete: bool, duration: float | None) -> list[Span]:
    """Return the stretches (seconds) of a video about which nothing is known, in whole chunks up to the end.

    A chunk is known if an action is active in it, or if labels and empty stretches cover it completely. A complete
    video is known except for what follows the start of an open label.
    """
    labels = list(labels)
    seconds = duration
    if seconds is None:
        seconds = max([0.0, *(label.start if label.end is None else label.end for label in labels)])
    # the product of a time and the rate may be just above a whole number
    n_chunks = max(0, math.ceil(seconds * FEATURES_PER_SECOND - 1e-6))
    known, shown = np.full(n_chunks, complete), np.zeros(n_chunks, bool)
    covered: list[Span] = []
    for label in labels:
        if label.end is None:
            known[CLOCK.first(label.start) :] &= not complete
        else:
            covered.append((label.start, min(label.end, seconds)))
            if label.action != NOTHING:
                shown[CLOCK.first(label.start) : CLOCK.end(label.end)] = True
    for start, end in join_spans(covered):
        last = n_chunks if end >= seconds - 1e-6 else math.floor(end * FEATURES_PER_SECOND + 1e-6)
        known[math.ceil(start * FEATURES_PER_SECOND - 1e-6) : last] = True
    return [(a / FEATURES_PER_SECOND, min(b / FEATURES_PER_SECOND, seconds)) for a, b in runs(~(known | shown))]


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Join stretches that touch or overlap."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + 1e-6:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def is_ours(content: Any) -> bool:
    """Return whether `to_document` wrote the content of a file."""
    return isinstance(content, dict) and isinstance(content.get(OURS), dict) and content[OURS].get("format") == FORMAT


def from_document(content: Any, where: str) -> tuple[State, dict[str, float]]:
    """Return the values of an ActivityNet file and the durations that it states.

    In a file that is not ours, all videos are complete: time without a label is background, as everywhere.
    Raises LabelsError, naming the file, the video and what to fix.
    """
    labels = labels_of(*read_activitynet(content, where), where)
    if not is_ours(content):
        return from_labels(labels)
    ours, state = content[OURS], State()
    try:
        for place, action in enumerate(ours.get("actions", [])):
            value = {"name": action["name"], "key": action["key"], "place": place}
            state.actions[str(action["id"])] = msgspec.convert(value, Action)
        state.subjects = {name: Subject(place) for place, name in enumerate(ours.get("subjects", []))}
        kept = (mark for entry in content["database"].values() for mark in entry.get("annotations", []))
        used = {mark["label"] for mark in kept if not mark.get("unlabelled")}
        ids = _add_actions(state, labels.classes, used)
        for video, entry in content["database"].items():
            subset = labels.videos[video].subset if labels.has_subsets else ""
            facts = {"complete": entry.get("complete", False), "comment": entry.get("comment", ""), "subset": subset}
            if (about := msgspec.convert(facts, About)) != About():
                state.abouts[video] = about
            closed, still_open = entry.get("annotations", []), entry.get("open", [])
            times: list[tuple[float, float | None]] = [(s.start, s.end) for s in labels.videos[video].segments]
            times += [(mark["start"], None) for mark in still_open]
            held: dict[str, Label] = {}
            for at, (mark, (start, end)) in enumerate(zip([*closed, *still_open], times, strict=True)):
                if mark.get("unlabelled") or (end is not None and end <= start):
                    continue
                key = str(mark.get("id", f"n{at}"))
                key = f"{key}-{at}" if key in held else key  # a line that was copied by hand
                more = {name: mark.get(name, "") for name in ("subject", "comment")}
                value = {"action": ids[mark["label"]], "start": start, "end": end, **more}
                held[key] = msgspec.convert(value, Label)
            if held:
                state.labels[video] = held
        for video, entry in ours.get("proposals", {}).items():
            if "searched_by" in entry:
                state.searches[video] = msgspec.convert({"model": entry["searched_by"]}, Search)
            for found in entry["found"]:
                if found["label"] in ids:  # else the action was removed by hand
                    start, end = found["segment"]
                    value = {**found, "action": ids[found["label"]], "start": start, "end": end}
                    proposal = msgspec.convert(value, Proposal)
                    state.proposals.setdefault(video, {})[found["id"]] = proposal
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        hint = "repair it, or name another file with -o and give this file as --labels."
        raise LabelsError(f"{where} is not a valid file of a labels project ({error!r}).", hint) from error
    return state, _durations(labels)


def from_labels(labels: Labels) -> tuple[State, dict[str, float]]:
    """Return the values of labels of any format, and their durations; every video is complete."""
    state = State()
    ids = _add_actions(state, labels.classes, {s.label for video in labels.videos.values() for s in video.segments})
    for video, held in labels.videos.items():
        state.abouts[video] = About(complete=True, subset=held.subset if labels.has_subsets else "")
        for at, segment in enumerate(held.segments):
            if segment.end > segment.start:
                value = {"action": ids[segment.label], "start": segment.start, "end": segment.end}
                value["subject"] = segment.subject
                state.put(change_of({"kind": "label", "video": video, "key": f"n{at}", "after": value}))
                if segment.subject:
                    state.subjects.setdefault(segment.subject, Subject(len(state.subjects)))
    return state, _durations(labels)


def _add_actions(state: State, classes: Iterable[str], used: set[str]) -> dict[str, str]:
    """Add the classes that the state lacks as actions; return the ids by name. `used`: classes of labels."""
    ids = {action.name: key for key, action in state.actions.items()} | {BACKGROUND: NOTHING}
    for name in [*classes, *sorted(used)]:
        if name not in ids and not (name == AMBIGUOUS and name not in used):
            ids[name] = f"c{len(ids)}"
            key = free_key(name, [action.key for action in state.actions.values()])
            value = {"name": name, "key": key, "place": len(state.actions)}
            state.put(change_of({"kind": "action", "key": ids[name], "after": value}))
    return ids


def free_key(name: str, taken: Iterable[str]) -> str:
    """Return a key for an action: a letter of its name, else another letter or digit, else none."""
    closed = RESERVED | {key.lower() for key in taken}
    letters = [letter for letter in name.lower() if letter.isascii() and letter.isalnum()]
    return next((key for key in [*letters, *"123456789abcdefghimopqrstuvwxyz"] if key not in closed), "")


def _durations(labels: Labels) -> dict[str, float]:
    return {name: video.duration for name, video in labels.videos.items() if video.duration is not None}
