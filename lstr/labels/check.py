"""What is wrong or odd in the labels of a data set, all of it, before anything is trained on them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from lstr.chunk import CLOCK, Clock
from lstr.errors import LabelsError
from lstr.labels.balance import (
    few_examples,
    never_trained,
    nothing_labelled,
    one_subset,
    spellings_of,
    split_recordings,
)
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment, mistake
from lstr.labels.units import (
    FRAMES,
    MILLISECONDS,
    TAIL,
    Footage,
    Unit,
    footage_of,
    odd_units,
    other_rate,
    whole_numbers,
)
from lstr.labels.video_ids import MATCH_HINT, mismatch_of, near_id

# Chunks by which per-chunk targets and features may differ: ends are rounded in more than one way.
TARGETS_TOLERANCE = 4

# The kind of the finding that no label belongs to any video.
NO_MATCH = "no match"
# The kind of the finding that features are not as many a second as they should be.
OTHER_RATE = "another rate"
# The kind of the finding that no video has an action.
UNLABELLED = "nothing labelled"
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
# Kinds of findings that say that times are no seconds.
UNITS = (FRAMES, MILLISECONDS)


@dataclass(frozen=True)
class Finding:
    """One thing found: an error stops training, a warning does not, a note says how something was taken."""

    severity: str
    kind: str
    video: str
    """Its id; empty where the finding is about all videos."""
    detail: str

    @property
    def sentence(self) -> str:
        """The video, if it is about one, and the detail."""
        return f"{self.video}: {self.detail}" if self.video else self.detail


def check(
    labels: Labels,
    lengths: Mapping[str, int] | None = None,
    subsets: Collection[str] = (),
    skip_missing: bool = False,
    footage: Mapping[str, Footage] | None = None,
    clock: Clock = CLOCK,
) -> list[Finding]:
    """Everything found in labels (read leniently), errors first, then by kind and video.

    lengths: chunks of each video that has features; None leaves features out of it. subsets: whose videos must have
    features; empty means all. skip_missing: a video without features is a warning. footage: what is known of the video
    files by id, where they are at hand. clock: that of the features.
    """
    known = footage_of(labels.videos, footage or {}, lengths or {}, clock)
    units = odd_units(labels.videos, known)
    findings = list(check_set(labels))
    classes = dict.fromkeys(labels.classes)  # in which a name is found at once
    for name, video in labels.videos.items():
        findings += _video(classes, name, video, known.get(name), units.get(name))
        findings += _targets(name, video, (lengths or {}).get(name))
    if not known and (question := whole_numbers(labels.videos.values())):
        findings.append(Finding(WARNING, "whole numbers", "", question))
    if lengths is not None:
        wanted = [name for name, video in labels.videos.items() if not subsets or video.subset in subsets]
        if sentence := other_rate(labels.videos, lengths, clock):
            findings.append(Finding(WARNING, OTHER_RATE, "", sentence))
        findings += unmatched(wanted, lengths)
        findings += missing(wanted, lengths, "features", WARNING if skip_missing else ERROR)
        findings += [
            Finding(WARNING, "no labels", name, f"{lengths[name]} chunks of features")
            for name in lengths
            if name not in labels.videos
        ]
    return in_order(findings)


def check_set(labels: Labels) -> Iterator[Finding]:
    """What is found in the labels as a whole: subsets, classes and recordings."""
    yield from (Finding(NOTE, note.kind, "", note.sentence) for note in labels.notes)
    yield from (Finding(WARNING, "never trained", "", sentence) for _, sentence in never_trained(labels))
    yield from (Finding(WARNING, "few examples", "", sentence) for sentence in few_examples(labels))
    yield from (Finding(WARNING, "spellings", "", question) for question in spellings_of(labels))
    yield from (Finding(WARNING, "one recording", "", sentence) for sentence in split_recordings(labels))
    if sentence := nothing_labelled(labels):
        yield Finding(WARNING, UNLABELLED, "", sentence)
    if sentence := one_subset(labels):
        yield Finding(WARNING, "one subset", "", sentence)


def missing(wanted: Iterable[str], present: Collection[str], what: str, severity: str) -> Iterator[Finding]:
    """The ids that have no labels, features or video (`what`), each with the id that may be meant."""
    by_name = {PurePath(name).name: name for name in present}
    names = dict.fromkeys(wanted)
    near = {near_id(name): name for name in present if name not in names}
    for name in names:
        if name not in present:
            path, hint = PurePath(name), ""
            if meant := by_name.get(path.name) or by_name.get(path.stem):
                hint = f"; do you mean {meant!r}? An id is the path in the folder without the ending"
            elif meant := near.get(near_id(name)):
                hint = f"; do you mean {meant!r}?"
            yield Finding(severity, f"no {what}", name, f"not found{hint}")


def unmatched(labelled: Collection[str], present: Collection[str]) -> Iterator[Finding]:
    """An error where no label belongs to any of the videos or features at hand."""
    if sentence := mismatch_of(labelled, present):
        yield Finding(ERROR, NO_MATCH, "", sentence)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; by kind and video."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.kind, found.video))


def stop_at_errors(findings: Sequence[Finding], source: str, files: Sequence[str] = ()) -> None:
    """Raise LabelsError when the findings in the label file `source` hold an error; `files` where there are several."""
    errors = [found for found in findings if found.severity == ERROR]
    if not errors:
        return
    if alone := next((found for found in errors if found.kind == NO_MATCH), None):
        raise LabelsError(f"{source}: {alone.detail}.", MATCH_HINT)
    first, file = errors[0], shlex.join(files or (source,))
    hint = f"`lstr labels check {file} --json` names each; correct them and go on."
    if all(found.kind == "no features" for found in errors):
        hint = "extract them with `lstr extract`, or leave them out with --set skip_missing=true."
    elif first.kind in UNITS:
        rate = first.detail.rpartition("/")[2].partition(" ")[0]
        file = "FILE" if len(files) > 1 else file  # only one of them may count so
        hint = f"if so, make seconds of them: lstr labels convert {file} --frames {rate} -o seconds.json"
    what = "error" if len(errors) == 1 else "errors"
    raise LabelsError(
        f"{source} has {len(errors)} {what}, first {first.kind} in {first.video!r} ({first.detail}).", hint
    )


def _video(
    classes: Collection[str], name: str, video: VideoLabels, footage: Footage | None, unit: Unit | None
) -> Iterator[Finding]:
    if not video.subset:
        yield Finding(ERROR, "no subset", name, "other videos have one")
    sound = []
    for segment in video.segments:
        if wrong := mistake(segment, classes):
            yield Finding(ERROR, wrong.kind, name, _written(segment))
            continue
        sound.append(segment)
        if segment.start == segment.end:
            yield Finding(WARNING, "zero length", name, _written(segment))
        if footage and not unit and segment.end > footage.seconds + TAIL:
            yield Finding(WARNING, "past the end", name, f"{_written(segment)} of {footage.seconds:g} s")
    if footage and unit and sound:
        first = min(sound, key=lambda segment: segment.start or segment.end)
        question = unit.question(first.start or first.end)
        yield Finding(ERROR, unit.kind, name, f"{_written(first)} of {footage.seconds:.2f} s; {question}")
    for first, second in pairwise(sorted(sound, key=_order)):
        if first == second:
            yield Finding(WARNING, "duplicate", name, _written(second))
    last_ends: dict[tuple[str, str], float] = {}
    for segment in sorted(set(sound), key=_order):
        who_does_what = (segment.label, segment.subject)  # two animals can do one thing at once
        last_end = last_ends.get(who_does_what, 0.0)
        if segment.start < last_end:
            yield Finding(WARNING, "overlap in one class", name, _written(segment))
        last_ends[who_does_what] = max(segment.end, last_end)


def _targets(name: str, video: VideoLabels, length: int | None) -> Iterator[Finding]:
    """Whether per-chunk targets are as many as the features."""
    if length is not None and video.n_chunks is not None and length != video.n_chunks:
        severity = ERROR if abs(length - video.n_chunks) > TARGETS_TOLERANCE else WARNING
        yield Finding(severity, "other length", name, f"{video.n_chunks} rows of targets, {length} of features")


def _order(segment: Segment) -> tuple[str, float, float, str]:
    return segment.label, segment.start, segment.end, segment.subject


def _written(segment: Segment) -> str:
    of = f" of {segment.subject}" if segment.subject else ""
    return f"{segment.label}{of} {segment.start:g}–{segment.end:g} s"
