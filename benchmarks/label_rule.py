"""Targets made from segments against published per-chunk targets of THUMOS'14: `python benchmarks/label_rule.py`.

The published arrays (wangxiang1230/OadTR, MIT) have a row for 6 frames of the source, not of 24 FPS, and one class a
row. Each video is therefore compared at its own rate, rows / duration. Writes label-rule.json beside this file.
"""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, THUMOS_CLASSES, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("LSTR_SHARED", HERE.parents[1] / "shared"))
CLIFF, DIVING = (THUMOS_CLASSES.index(name) for name in ("CliffDiving", "Diving"))
IGNORED = THUMOS_CLASSES.index(AMBIGUOUS)

FPS = (24, 25, 29.97, 30)  # of the sources
SHARE = 0.1  # of a chunk that a segment must cover, found by looking at where the differences are

RULES = {
    "floor(start), ceil(end)": (np.floor, np.ceil),
    "floor(start + 0.1), ceil(end - 0.1)": (lambda t: np.floor(t + SHARE), lambda t: np.ceil(t - SHARE)),
    "floor(start), floor(end) + 1": (np.floor, lambda t: np.floor(t) + 1),
    "round(start), round(end)": (np.round, np.round),
    "centre of the chunk": (lambda t: np.ceil(t - 0.5), lambda t: np.ceil(t - 0.5)),
    "floor(start), floor(end)": (np.floor, np.floor),
}
"""First chunk and chunk after the last of a segment, from its times in chunks."""


def by_rule(segments: list[dict], rate: float, rows: int, rule: str) -> np.ndarray:
    """Multi-hot (rows, 22) by one of RULES, `rate` chunks a second."""
    first, after = RULES[rule]
    made = np.zeros((rows, len(THUMOS_CLASSES)), np.uint8)
    for segment in segments:
        start, end = (value * rate for value in segment["segment"])
        made[int(first(start)) : int(after(end)), THUMOS_CLASSES.index(segment["label"])] = 1
    made[~made.any(1), 0] = 1
    return made


def by_ours(segments: list[dict], rate: float, rows: int) -> np.ndarray:
    """The same by `lstr.labels.label_set.targets`, whose rate is 4 a second, on times stretched to it."""
    scale = rate / FEATURES_PER_SECOND
    stretched = tuple(Segment(s["segment"][0] * scale, s["segment"][1] * scale, s["label"]) for s in segments)
    return targets(VideoLabels("", None, stretched), THUMOS_CLASSES, rows)


def one_of(made: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Multi-hot to one class a row where the published row is one of ours or ambiguous, to compare boundaries alone."""
    one = made.copy()
    rows = np.arange(len(published))
    theirs = published.argmax(1)
    taken = ((made[:, 1:].sum(1) > 1) & (made[rows, theirs] > 0)) | (theirs == IGNORED)
    one[taken] = published[taken]
    return one


def why(k: int, c: int, made: np.ndarray, published: np.ndarray, full: np.ndarray) -> str:
    """The reason for which chunk k differs in class c; `full` are the targets without chunks hardly covered."""
    theirs = int(published[k].argmax())
    if made[k, c] and theirs == IGNORED:
        return "labelled Ambiguous, which the segments do not have"
    if made[k, c] and c == DIVING and theirs == CLIFF:
        return "Diving hidden by CliffDiving (one class a row)"
    if made[k, c] and theirs != 0 and made[k, theirs]:
        return "another action at once wins (one class a row)"
    if made[k, c] and not full[k, c]:
        return "first or last chunk of a segment, covered by less than a tenth of it, is left out"
    return "labelled, but no segment is there" if published[k, c] else "a segment is there, but background is labelled"


def which_wins(k: int, row: np.ndarray, segments: list[dict], rate: float) -> str:
    """Which of several actions in chunk k the published row has."""
    label = THUMOS_CLASSES[int(row.argmax())]
    here = [s for s in segments if s["segment"][0] * rate < k + 1 and s["segment"][1] * rate > k]
    starts = {s["label"]: s["segment"][0] for s in here}
    if {"CliffDiving", "Diving"} == starts.keys():
        return f"{label} of CliffDiving and Diving"
    if label not in starts:
        return "neither"
    return "the one that began first" if starts[label] == min(starts.values()) else "the one that began later"


def main() -> None:
    data = SHARED / "data" / "thumos14"
    database = json.loads((data / "thumos14_segments.json").read_text())["database"]
    left_out = [video for video, entry in database.items() if not entry["duration"]]
    published, segments, rates = {}, {}, {}
    for video, entry in database.items():
        if entry["duration"]:
            published[video] = np.load(data / "target_perframe" / f"{video}.npy")
            segments[video] = entry["annotations"]
            rates[video] = len(published[video]) / entry["duration"]
    theirs = np.concatenate(list(published.values())) > 0
    made = {v: by_ours(segments[v], rates[v], len(published[v])) for v in published}
    ours = np.concatenate(list(made.values())) > 0
    alike = np.concatenate([one_of(made[v], published[v]) for v in published]) > 0
    clear = ~theirs[:, IGNORED]

    rules = {}
    for rule in RULES:
        by = np.concatenate([one_of(by_rule(segments[v], rates[v], len(p), rule), p) for v, p in published.items()]) > 0
        rules[rule] = round(float((by == theirs).all(1)[clear].mean()), 5)

    reasons: Counter = Counter()
    per_reason: dict[str, Counter] = {name: Counter() for name in THUMOS_CLASSES[1:-1]}
    odd: dict[str, Counter] = {}
    for video, array in published.items():
        full = by_rule(segments[video], rates[video], len(array), "floor(start + 0.1), ceil(end - 0.1)")
        for k, c in zip(*np.nonzero(made[video] != array), strict=True):
            if c in (0, IGNORED):
                continue
            reason = why(k, c, made[video], array, full)
            reasons[reason] += 1
            per_reason[THUMOS_CLASSES[c]][reason] += 1
            odd.setdefault(reason, Counter())[f"{video}, {THUMOS_CLASSES[c]}"] += 1

    winners: Counter = Counter()
    for video, array in published.items():
        for k in np.flatnonzero((made[video][:, 1:].sum(1) > 1) & (array[:, IGNORED] == 0)):
            winners[which_wins(k, array[k], segments[video], rates[video])] += 1

    per_class = {}
    for c, name in enumerate(THUMOS_CLASSES[:-1]):
        both, either = (ours & theirs)[:, c].sum(), (ours | theirs)[:, c].sum()
        per_class[name] = {
            "agreement": round(float((ours == theirs)[:, c].mean()), 5),
            "agreement_one_class_a_row": round(float((alike == theirs)[:, c].mean()), 5),
            "published_chunks": int(theirs[:, c].sum()),
            "our_chunks": int(ours[:, c].sum()),
            "intersection_over_union": round(float(both / either), 4),
            "differences": dict(per_reason.get(name, {})),
        }
    short = Counter()
    for video, array in published.items():
        frames = min(
            (round(fps * database[video]["duration"] / 6 - len(array), 1) for fps in FPS), key=lambda x: abs(x - 0.5)
        )
        short["less than 1 row" if 0 <= frames < 1 else "1 row" if frames < 2 else "more"] += 1
    shown = Counter(f"{rate:.2f}" if rate < 4.5 else "4.92 to 5.00" for rate in rates.values())
    record = {
        "what": "targets of label_set.targets from thumos14_segments.json, at each video's own rate, against "
        "target_perframe of wangxiang1230/OadTR",
        **about_machine(),
        "videos": len(published),
        "left_out": {"videos": left_out, "reason": "no segment and no duration: it has ambiguous actions only"},
        "chunks": len(theirs),
        "rows_a_second": dict(sorted(shown.items())),
        "rows_short_of_source_frames_over_6": dict(sorted(short.items())),
        "rows_equal": round(float((ours == theirs).all(1).mean()), 5),
        "rows_equal_without_ambiguous": round(float((ours == theirs).all(1)[clear].mean()), 5),
        "rows_equal_one_class_a_row_without_ambiguous": round(float((alike == theirs).all(1)[clear].mean()), 5),
        "rows_equal_by_rule": rules,
        "differing_entries_by_reason": dict(reasons.most_common()),
        "where_most": {reason: dict(found.most_common(4)) for reason, found in odd.items()},
        "two_actions_at_once": dict(winners.most_common()),
        "ambiguous_chunks": int(theirs[:, IGNORED].sum()),
        "per_class": per_class,
    }
    write_json(HERE / "label-rule.json", record)
    print(json.dumps({key: value for key, value in record.items() if key != "per_class"}, indent=1))


if __name__ == "__main__":
    main()
