"""The file of a labels project: ActivityNet's JSON, which `lstr learn` takes as it is, with more that it passes over.

Time that is neither labelled nor said to be empty is written as "Ambiguous", from which nothing is learnt; in a video
that is complete it is background. Such segments are marked `"unlabelled": true`, and are no labels when the file is
read again.

What models propose, and what was decided of it, is in our own object alone: no other reader takes it for a label.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from lstr.chunk import CLOCK, FEATURES_PER_SECOND
from lstr.errors import LabelsError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, labels_of, read_activitynet, runs
from lstr.pipelines.labelling.values import NOTHING, RESERVED, About, Action, Label, State, Subject, change_of

FORMAT = "lstr-labels/1"
# The name of our own object in the file.
OURS = "lstr"


def to_document(state: State, durations: Mapping[str, float], stamp: Mapping[str, Any]) -> dict[str, Any]:
    """The file's content; `stamp` goes into our own object, and says which revision of which journal it is.

    durations: seconds by video, where they are known. A video of which nothing is said is not in it.
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
        closed = sorted(
            ((key, label) for key, label in labels.items() if label.end is not None),
            key=lambda pair: (pair[1].start, pair[1].end, pair[0]),
        )
        unknown = unlabelled(labels.values(), about.complete, durations.get(video))
        has_ambiguous |= bool(unknown)
        entry["annotations"] = [_annotation(key, label, names) for key, label in closed]
        entry["annotations"] += [{"label": AMBIGUOUS, "segment": [*span], "unlabelled": True} for span in unknown]
        if still := [_annotation(key, label, names) for key, label in sorted(labels.items()) if label.end is None]:
            entry["open"] = still
        database[video] = entry
    ordered = state.ordered()
    classes = [BACKGROUND, *(action.name for _, action in ordered)]
    if has_ambiguous and AMBIGUOUS not in classes:
        classes.append(AMBIGUOUS)
    ours = {
        "format": FORMAT,
        **stamp,
        "actions": [{"id": key, "name": action.name, "key": action.key} for key, action in ordered],
        "subjects": sorted(state.subjects, key=lambda name: (state.subjects[name].place, name)),
    }
    if proposed := _proposals(state):
        ours["proposals"] = proposed
    return {"version": "lstr labels 1", "classes": classes, OURS: ours, "database": database}


def _annotation(key: str, label: Label, names: Mapping[str, str]) -> dict[str, Any]:
    times = {"start": label.start} if label.end is None else {"segment": [label.start, label.end]}
    more = {name: text for name, text in (("subject", label.subject), ("comment", label.comment)) if text}
    return {"label": names[label.action], **times, "id": key, **more}


def _proposals(state: State) -> dict[str, Any]:
    """By video which model has looked for proposals last, and those of all; those of removed actions are left out."""
    proposed: dict[str, Any] = {}
    for video in sorted({*state.searches, *state.proposals}):
        search = state.searches.get(video)
        held = ((key, p) for key, p in state.proposals.get(video, {}).items() if p.action in state.actions)
        found = [
            {
                "label": state.actions[p.action].name,
                "segment": [p.start, p.end],
                "state": p.state,
                "peak": p.peak,
                "threshold": p.threshold,
                "model": p.model,
                "id": key,
            }
            for key, p in sorted(held, key=lambda pair: (pair[1].start, pair[1].end, pair[0]))
        ]
        if search or found:
            proposed[video] = {**({"searched_by": search.model} if search else {}), "found": found}
    return proposed


def _read_proposals(state: State, proposed: Mapping[str, Any], ids: Mapping[str, str]) -> None:
    """Put what `_proposals` has written into the values; ids: of actions, by name."""
    for video, entry in proposed.items():
        if "searched_by" in entry:
            _put(state, "search", video, "", {"model": entry["searched_by"]})
        for found in entry["found"]:
            if found["label"] in ids:  # else the action was removed by hand
                start, end = found["segment"]
                more = {name: found[name] for name in ("state", "peak", "threshold", "model")}
                value = {"action": ids[found["label"]], "start": start, "end": end, **more}
                _put(state, "proposal", video, found["id"], value)


def unlabelled(labels: Iterable[Label], complete: bool, duration: float | None) -> list[tuple[float, float]]:
    """Stretches (seconds) of a video of which nothing is known, in whole chunks, the last one up to the end.

    A chunk is known where an action is on in it, or where labels and stretches without any action cover it whole. In a
    complete video all of it is, but for what follows the start of a label that is still open.
    """
    labels = list(labels)
    ends = [label.start if label.end is None else label.end for label in labels]
    seconds = max([duration or 0.0, *ends]) if duration is None else duration
    n_chunks = max(0, math.ceil(seconds * FEATURES_PER_SECOND - 1e-6))
    known, shown = np.full(n_chunks, complete), np.zeros(n_chunks, bool)
    covered: list[tuple[float, float]] = []
    for label in labels:
        if label.end is None:
            known[CLOCK.first(label.start) :] &= not complete
        else:
            covered.append((label.start, min(label.end, seconds)))
            if label.action != NOTHING:
                shown[CLOCK.first(label.start) : CLOCK.end(label.end)] = True
    for start, end in joined(covered):
        last = n_chunks if end >= seconds - 1e-6 else math.floor(end * FEATURES_PER_SECOND + 1e-6)
        known[math.ceil(start * FEATURES_PER_SECOND - 1e-6) : last] = True
    spans = runs(~(known | shown))
    return [(a / FEATURES_PER_SECOND, min(b / FEATURES_PER_SECOND, seconds)) for a, b in spans]


def joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Stretches that touch or overlap as one."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + 1e-6:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def is_ours(content: Any) -> bool:
    """Whether the content of a file was written by `to_document`."""
    return isinstance(content, dict) and isinstance(content.get(OURS), dict) and content[OURS].get("format") == FORMAT


def from_document(content: Any, where: str) -> tuple[State, dict[str, float]]:
    """The values of a file in ActivityNet's form, ours or another's, and the durations that it states.

    In a file that is not ours, all time that is not labelled is background, as everywhere: its videos are complete.
    Raises LabelsError, naming the file, the video and what to fix.
    """
    labels = labels_of(*read_activitynet(content, where), where)  # which names what is wrong
    if not is_ours(content):
        return from_labels(labels)
    ours, state = content[OURS], State()
    try:
        for place, action in enumerate(ours.get("actions", [])):
            _put(state, "action", "", str(action["id"]), {"name": action["name"], "key": action["key"], "place": place})
        for place, name in enumerate(ours.get("subjects", [])):
            _put(state, "subject", "", name, {"place": place})
        entries = content["database"].values()
        kept = (mark for entry in entries for mark in entry.get("annotations", []) if not mark.get("unlabelled"))
        ids = _ids_of(state, labels.classes, {mark["label"] for mark in kept})
        for video, entry in content["database"].items():
            subset = labels.videos[video].subset if labels.has_subsets else ""
            about = {"complete": entry.get("complete", False), "comment": entry.get("comment", ""), "subset": subset}
            if About(**about) != About():
                _put(state, "about", video, "", about)
            spans: list[tuple[float, float | None]] = [(s.start, s.end) for s in labels.videos[video].segments]
            marks = [*entry.get("annotations", []), *entry.get("open", [])]
            spans += [(mark["start"], None) for mark in entry.get("open", [])]
            for at, (mark, (start, end)) in enumerate(zip(marks, spans, strict=True)):
                if mark.get("unlabelled") or (end is not None and end <= start):
                    continue
                label = {"action": ids[mark["label"]], "start": start, "end": end}
                more = {name: mark.get(name, "") for name in ("subject", "comment")}
                key = str(mark.get("id", f"n{at}"))
                key = f"{key}-{at}" if key in state.labels.get(video, {}) else key  # a line that was copied by hand
                _put(state, "label", video, key, {**label, **more})
        _read_proposals(state, ours.get("proposals", {}), ids)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "mend it, or name another file with -o and give this file as --labels."
        raise LabelsError(f"{where} is no sound file of a labels project ({error!r}).", hint) from error
    return state, _durations(labels)


def from_labels(labels: Labels) -> tuple[State, dict[str, float]]:
    """The values that labels of any form make, and their durations; every video is complete."""
    state = State()
    used = {segment.label for video in labels.videos.values() for segment in video.segments}
    ids = _ids_of(state, labels.classes, used)
    for video, held in labels.videos.items():
        state.abouts[video] = About(complete=True, subset=held.subset if labels.has_subsets else "")
        for at, segment in enumerate(held.segments):
            if segment.end > segment.start:
                value = {"action": ids[segment.label], "start": segment.start, "end": segment.end}
                value["subject"] = segment.subject
                if segment.subject:
                    state.subjects.setdefault(segment.subject, Subject(len(state.subjects)))
                _put(state, "label", video, f"n{at}", value)
    return state, _durations(labels)


def _ids_of(state: State, classes: Iterable[str], used: Collection[str]) -> dict[str, str]:
    """The id of each class by its name, after those that the state lacks were added; `used`: of labels."""
    ids = {action.name: key for key, action in state.actions.items()} | {BACKGROUND: NOTHING}
    for name in [*classes, *sorted(used)]:
        if name not in ids and not (name == AMBIGUOUS and name not in used):
            ids[name] = f"c{len(ids)}"
            keys = [action.key for action in state.actions.values()]
            state.actions[ids[name]] = Action(name, free_key(name, keys), len(state.actions))
    return ids


def free_key(name: str, taken: Iterable[str]) -> str:
    """A key for an action: a letter of its name, else a digit, else none."""
    closed = RESERVED | {key.lower() for key in taken}
    letters = [letter for letter in name.lower() if letter.isascii() and letter.isalnum()]
    return next((key for key in [*letters, *"123456789abcdefghimopqrstuvwxyz"] if key not in closed), "")


def _put(state: State, kind: str, video: str, key: str, value: dict[str, Any]) -> None:
    state.put(change_of({"kind": kind, "video": video, "key": key, "before": None, "after": value}))


def _durations(labels: Labels) -> dict[str, float]:
    return {name: video.duration for name, video in labels.videos.items() if video.duration is not None}
