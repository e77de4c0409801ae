"""Check the labels of a data set: find everything that is wrong or odd before anything is trained on them."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from lstr.chunk import CLOCK, Clock
from lstr.errors import LabelsError
from lstr.labels.label_set import Labels, VideoLabels, actions_of
from lstr.labels.segment import Segment, mistake
from lstr.labels.units import (
    FRAMES,
    MILLISECONDS,
    TAIL_S,
    Footage,
    Unit,
    footage_of,
    odd_units,
    other_rate,
    whole_numbers,
)
from lstr.labels.video_ids import MATCH_HINT, mismatch_of, near_id, recording_of

# Chunks by which per-chunk targets and features may differ: ends are rounded in more than one way.
TARGETS_TOLERANCE = 4
# Examples of a class; with fewer, training and testing say little.
FEW = 5

# The kind of the finding that no label belongs to any video.
NO_MATCH = "no match"
# The kind of the finding that features have another rate than the labels say.
OTHER_RATE = "another rate"
# The kind of the finding that no video has an action.
UNLABELLED = "nothing labelled"
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
# Kinds of findings that times are not in seconds.
UNITS = (FRAMES, MILLISECONDS)

# Marks above or below a letter of Latin, Greek or Cyrillic; in other scripts they make other letters.
ACCENTS = re.compile("[\u0300-\u036f]")
BETWEEN = re.compile(r"[\s_-]+")


@dataclass(frozen=True)
class Finding:
    """Something wrong or odd: an error stops training, a warning does not, a note says how something was read."""

    severity: str
    kind: str
    video: str
    """Its id; empty if the finding is about all videos."""
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
    """Return everything found in labels, errors first, then by kind and video.

    Args:
        labels: Read leniently.
        lengths: Chunks of each video that has features; None if there are no features to check.
        subsets: Whose videos must have features; empty means all.
        skip_missing: Make a video without features a warning.
        footage: What is known of the video files by id, if they are available.
        clock: That of the features.
    """
    known = footage_of(labels.videos, footage or {}, lengths or {}, clock)
    units = odd_units(labels.videos, known)
    findings = list(check_set(labels))
    classes = dict.fromkeys(labels.classes)  # a dict, in which a name is found at once
    for name, video in labels.videos.items():
        findings += _check_video(classes, name, video, known.get(name), units.get(name))
        length = (lengths or {}).get(name)
        if length is not None and video.n_chunks is not None and length != video.n_chunks:
            severity = ERROR if abs(length - video.n_chunks) > TARGETS_TOLERANCE else WARNING
            detail = f"{video.n_chunks} rows of targets, {length} of features"
            findings.append(Finding(severity, "other length", name, detail))
    if not known and (question := whole_numbers(labels.videos.values())):
        findings.append(Finding(WARNING, "whole numbers", "", question))
    if lengths is not None:
        wanted = [name for name, video in labels.videos.items() if not subsets or video.subset in subsets]
        if sentence := other_rate(labels.videos, lengths, clock):
            findings.append(Finding(WARNING, OTHER_RATE, "", sentence))
        findings += unmatched(wanted, lengths)
        findings += missing(wanted, lengths, "features", WARNING if skip_missing else ERROR)
        findings += [
            Finding(WARNING, "no labels", name, f"{length} chunks of features")
            for name, length in lengths.items()
            if name not in labels.videos
        ]
    return in_order(findings)


def check_set(labels: Labels) -> Iterator[Finding]:
    """Yield what is found in the labels as a whole: subsets, classes and recordings."""
    yield from (Finding(NOTE, note.kind, "", note.sentence) for note in labels.notes)
    videos, actions = labels.videos, actions_of(labels)
    examples: dict[str | None, Counter[str]] = defaultdict(Counter)  # of each class by subset; None: in all of them
    for video in videos.values():
        for key in (video.subset, None):
            examples[key].update(segment.label for segment in video.segments)

    present = {video.subset for video in videos.values()}
    trained = "training" if "training" in present else None
    if trained is None and {"validation", "testing"} <= present:
        trained = "validation"  # as in THUMOS'14
    never_trained = set()
    for name in actions if trained else ():
        tested = [
            f"{examples[s][name]} in {s}" for s in ("testing", "validation") if s != trained and examples[s][name]
        ]
        if tested and not examples[trained][name]:
            never_trained.add(name)
            yield Finding(WARNING, "never trained", "", f"{name}: {', '.join(tested)}, none in {trained}")
    for name in actions:
        number = examples[trained][name]
        if number < FEW and name not in never_trained:
            where = f" in {trained}" if trained else ""
            what = f"{number or 'no'} {'example' if number == 1 else 'examples'}"
            yield Finding(WARNING, "few examples", "", f"{name}: {what}{where}")

    spellings = defaultdict(list)
    for name in actions:  # names that differ only in case, accents or spaces
        plain = ACCENTS.sub("", unicodedata.normalize("NFKD", name))
        spellings[BETWEEN.sub("", plain).casefold() or name].append(name)
    for names in spellings.values():
        if len(names) > 1:
            most, *others = sorted(names, key=lambda name: -examples[None][name])
            each = ", ".join(f"{name!r} ({examples[None][name]})" for name in (most, *others))
            settings = " ".join(f"--rename {shlex.quote(f'{name}={most}')}" for name in others)
            question = f"are these one class? {each}; if so: lstr labels convert FILE {settings} -o renamed.json"
            yield Finding(WARNING, "spellings", "", question)

    clips: dict[str, dict[str, str]] = defaultdict(dict)  # the first clip of each recording in each subset
    for name, video in videos.items():
        clips[recording_of(name)].setdefault(video.subset, name)
    for recording, firsts in clips.items():
        if len(firsts) > 1:
            where = ", ".join(f"{name} in {subset}" for subset, name in firsts.items())
            yield Finding(WARNING, "one recording", "", f"{recording}: {where}")

    if videos and actions and not any(video.segments or video.n_chunks is not None for video in videos.values()):
        where = "the only video" if len(videos) == 1 else f"any of the {len(videos)} videos"
        yield Finding(WARNING, UNLABELLED, "", f"no action is labelled in {where}")
    if len(videos) > 1 and len(present) == 1 and labels.has_subsets:
        (subset,) = present
        use = "test" if subset == "training" else "train"
        yield Finding(
            WARNING, "one subset", "", f"all {len(videos)} videos are in {subset}: nothing is left to {use} on"
        )


def missing(wanted: Iterable[str], present: Collection[str], what: str, severity: str) -> Iterator[Finding]:
    """Yield the ids that have no labels, features or video (`what`), each with the id that may be meant."""
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
    """Yield an error if no label belongs to any of the available videos or features."""
    if sentence := mismatch_of(labelled, present):
        yield Finding(ERROR, NO_MATCH, "", sentence)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return errors first, then warnings, then notes; by kind and video."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.kind, found.video))


def stop_at_errors(findings: Sequence[Finding], source: str, files: Sequence[str] = ()) -> None:
    """Raise LabelsError if the findings in the label file `source` hold an error; `files` if there are several."""
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


def _check_video(
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
        if footage and not unit and segment.end > footage.seconds + TAIL_S:
            yield Finding(WARNING, "past the end", name, f"{_written(segment)} of {footage.seconds:g} s")
    if footage and unit and sound:
        first = min(sound, key=lambda segment: segment.start or segment.end)
        question = unit.question(first.start or first.end)
        yield Finding(ERROR, unit.kind, name, f"{_written(first)} of {footage.seconds:.2f} s; {question}")

    def order(segment: Segment) -> tuple[str, float, float, str]:
        return segment.label, segment.start, segment.end, segment.subject

    for one, other in pairwise(sorted(sound, key=order)):
        if one == other:
            yield Finding(WARNING, "duplicate", name, _written(other))
    last_ends: dict[tuple[str, str], float] = {}
    for segment in sorted(set(sound), key=order):
        action = (segment.label, segment.subject)  # two animals can do one thing at once
        if segment.start < last_ends.get(action, 0.0):
            yield Finding(WARNING, "overlap in one class", name, _written(segment))
        last_ends[action] = max(segment.end, last_ends.get(action, 0.0))


def _written(segment: Segment) -> str:
    of = f" of {segment.subject}" if segment.subject else ""
    return f"{segment.label}{of} {segment.start:g}–{segment.end:g} s"
