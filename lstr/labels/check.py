"""Check the labels of a data set for errors and oddities before training."""

import math
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from operator import attrgetter
from pathlib import PurePath
from statistics import median

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.errors import LabelsError
from lstr.labels.label_set import Labels, VideoLabels, actions_of
from lstr.labels.segment import Segment, find_error
from lstr.labels.video_ids import MATCH_HINT, mismatch_of, near_id, recording_of

# A segment may end this much after the last complete chunk, because extraction drops an incomplete tail.
TAIL_S = 1 / FEATURES_PER_SECOND
FAR = 1.5  # if the last time exceeds the duration by this factor, it is more than an inexact end
# Common frame rates, and the default.
RATES = (15, 24, 25, 30, 50, 60, 100, 120, 240)
USUAL = 30
# Kinds of findings for times that are not in seconds.
FRAMES, MILLISECONDS = "frame numbers", "milliseconds"
UNITS = (FRAMES, MILLISECONDS)
LONG_S = 60  # whole numbers up to this are probably seconds, if the duration of the video is unknown
ENOUGH = 4  # if this many times are all whole numbers, it is not by chance
# Maximum relative difference between the length of features and the duration, for example 23.976 instead of 24 FPS.
SAME_RATE = 0.03
# Maximum difference in length between per-chunk targets and features, because data sets round ends differently.
TARGETS_TOLERANCE = 4
FEW = 5  # with fewer examples of a class, training and testing are unreliable

# A class is probably misspelt if a class with this many times its examples has a similar name.
MISSPELT_RATIO = 5
MISSPELT_SIMILARITY = 0.85  # of `difflib`: one wrong letter in a name of seven

NO_MATCH = "no match"  # kind of finding: no label belongs to any video
OTHER_RATE = "another rate"  # kind of finding: the rate of the features contradicts the labels
UNLABELLED = "nothing labelled"  # kind of finding: no video has an action
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)

# Diacritics of Latin, Greek and Cyrillic; in other scripts such marks form other letters.
ACCENTS = re.compile("[\u0300-\u036f]")
BETWEEN = re.compile(r"[\s_-]+")


@dataclass(frozen=True)
class Finding:
    """A finding in labels: an error prevents training, a warning does not, a note explains how something was read."""

    severity: str
    kind: str
    video: str  # the video's id; empty if the finding is about all videos
    detail: str

    @property
    def sentence(self) -> str:
        """The finding as a sentence, with the video if it has one."""
        return f"{self.video}: {self.detail}" if self.video else self.detail


# of a video file: duration in seconds; frame rate, which may be unknown; seconds from its sound to its first frame
Footage = tuple[float, float | None, float]
LATE_S = 0.1  # encoders put sound up to 0.05 s before the first frame


def check(
    labels: Labels,
    lengths: Mapping[str, int] | None = None,
    subsets: Collection[str] = (),
    skip_missing: bool = False,
    footage: Mapping[str, Footage] | None = None,
    clock: Clock = CLOCK,
) -> list[Finding]:
    """Return all findings in labels, errors first, then by kind and video.

    Args:
        labels: Labels that were read with `lenient`.
        lengths: Number of chunks of each video with features; None if there are no features to check.
        subsets: Subsets that must have features; empty means all.
        skip_missing: Make a video without features a warning.
        footage: What is known of the video files by id, if they are available.
        clock: The clock of the features.
    """
    # The best known duration of each video: from its file, else its features, else the label file
    known: dict[str, Footage] = {n: (v.duration, None, 0.0) for n, v in labels.videos.items() if v.duration is not None}
    known |= {name: (clock.at(length), None, 0.0) for name, length in (lengths or {}).items() if length}
    known |= footage or {}
    units = odd_units(labels.videos, known)
    findings = list(check_set(labels))
    classes = dict.fromkeys(labels.classes)  # a dict for fast lookup that keeps the order
    for name, video in labels.videos.items():
        findings += _check_video(classes, name, video, known.get(name), units.get(name))
        length = (lengths or {}).get(name)
        if length is not None and video.n_chunks is not None and length != video.n_chunks:
            severity = ERROR if abs(length - video.n_chunks) > TARGETS_TOLERANCE else WARNING
            detail = f"{video.n_chunks} rows of targets, {length} of features"
            findings.append(Finding(severity, "other length", name, detail))
    times = [t for video in labels.videos.values() for s in video.segments for t in (s.start, s.end)]
    if not known.keys() & labels.videos.keys() and len(times) >= ENOUGH and max(times) > LONG_S and _are_whole(times):
        question = f"all times are whole numbers, up to {max(times):g}: seconds or frames? The videos would show it"
        findings.append(Finding(WARNING, "whole numbers", "", question))
    if lengths is not None:
        wanted = [name for name, video in labels.videos.items() if not subsets or video.subset in subsets]
        severity = WARNING if skip_missing else ERROR
        empty = [name for name in wanted if lengths.get(name) == 0]
        findings += [Finding(severity, "no features", name, "its features have no rows") for name in empty]
        if sentence := other_rate(labels.videos, lengths, clock):
            findings.append(Finding(WARNING, OTHER_RATE, "", sentence))
        findings += unmatched(wanted, lengths)
        findings += missing(wanted, lengths, "features", severity)
        for name in (name for name in lengths if name not in labels.videos):
            findings.append(Finding(WARNING, "no labels", name, f"{lengths[name]} chunks of features"))
    return in_order(findings)


def check_set(labels: Labels) -> Iterator[Finding]:
    """Yield findings about the labels as a whole: subsets, classes and recordings."""
    yield from (Finding(NOTE, note.kind, "", note.sentence) for note in labels.notes)
    videos, actions = labels.videos, actions_of(labels.classes)
    examples: dict[str | None, Counter[str]] = defaultdict(Counter)  # per class, by subset; None is the total
    for video in videos.values():
        for key in (video.subset, None):
            examples[key].update(segment.label for segment in video.segments)

    present = {video.subset for video in videos.values()}
    trained = "training" if "training" in present else None
    if trained is None and {"validation", "testing"} <= present:
        trained = "validation"  # as in THUMOS'14
    for name in actions:
        number, others = examples[trained][name], [s for s in ("testing", "validation") if trained and s != trained]
        if tested := [f"{examples[s][name]} in {s}" for s in others if examples[s][name] and not number]:
            yield Finding(WARNING, "never trained", "", f"{name}: {', '.join(tested)}, none in {trained}")
        elif number < FEW:
            where = f" in {trained}" if trained else ""
            what = f"{number or 'no'} {'example' if number == 1 else 'examples'}"
            yield Finding(WARNING, "few examples", "", f"{name}: {what}{where}")

    spellings = defaultdict(list)
    for name in actions:  # report names that differ only in case, accents or spaces
        plain = ACCENTS.sub("", unicodedata.normalize("NFKD", name))
        spellings[BETWEEN.sub("", plain).casefold() or name].append(name)
    for name in actions:
        number = examples[None][name]
        usual = [other for other in actions if examples[None][other] >= MISSPELT_RATIO * max(1, number)]
        if close := get_close_matches(name, usual, 1, MISSPELT_SIMILARITY):
            if ACCENTS.sub("", near_id(name)) != near_id(close[0]):  # else it is a spelling of the same name
                spellings[f"{close[0]} {name}"] = [close[0], name]
    for names in spellings.values():
        if len(names) > 1:
            most, *others = sorted(names, key=lambda name: -examples[None][name])
            each = ", ".join(f"{name!r} ({examples[None][name]})" for name in (most, *others))
            settings = " ".join(f"--rename {shlex.quote(f'{name}={most}')}" for name in others)
            question = f"are these one class? {each}; if so: lstr labels convert FILE {settings} -o renamed.json"
            yield Finding(WARNING, "spellings", "", question)

    clips: dict[str, dict[str, str]] = defaultdict(dict)  # one clip of each recording in each subset
    for name, video in videos.items():
        clips[recording_of(name)].setdefault(video.subset, name)
    for recording, firsts in clips.items():
        if len(firsts) > 1:
            where = ", ".join(f"{name} in {subset}" for subset, name in firsts.items())
            yield Finding(WARNING, "one recording", "", f"{recording}: {where}")

    if not videos:
        yield Finding(WARNING, UNLABELLED, "", "there is no video")
    if videos and actions and not any(video.segments or video.n_chunks is not None for video in videos.values()):
        where = "the only video" if len(videos) == 1 else f"any of the {len(videos)} videos"
        yield Finding(WARNING, UNLABELLED, "", f"no action is labelled in {where}")
    if len(videos) > 1 and len(present) == 1 and labels.has_subsets:
        (subset,) = present
        use = "`lstr learn` tests on parts of it, `lstr train` on nothing"
        use = use if subset == "training" else "nothing is left to train on"
        yield Finding(WARNING, "one subset", "", f"all {len(videos)} videos are in {subset}: {use}")


def odd_units(videos: Mapping[str, VideoLabels], footage: Mapping[str, Footage]) -> dict[str, tuple[str, float]]:
    """Return the unit of times, as kind and number per second, for each video with times that are not seconds.

    Such a video has only whole numbers, most of them past its end, that fit when they are divided by its frame rate, or
    by a common rate that fits all such videos. Videos that are not in `footage` are skipped.
    """
    needed, n_labelled = {}, 0  # smallest possible frame rate of each such video, if its times are frame numbers
    for name, video in videos.items():
        times = [time for segment in video.segments for time in (segment.start, segment.end)]
        if name not in footage or not times:
            continue
        n_labelled += 1
        seconds, last = footage[name][0], max(times)
        n_past = sum(time > seconds + TAIL_S for time in times)
        if last > FAR * seconds + 1 and 2 * n_past > len(times) and _are_whole(times):
            needed[name] = last / (seconds + TAIL_S)
    if 2 * len(needed) < n_labelled:  # one wrong time among few may be a typing error; several in one video are not
        needed = {name: least for name, least in needed.items() if 2 * len(videos[name].segments) >= ENOUGH}
    most = max(needed.values(), default=0)
    rate = next((rate for rate in RATES if rate >= math.floor(most)), None)
    usual = (MILLISECONDS, 1000.0) if most <= 1000 else None
    if rate is not None:  # labels that end early are weak evidence for the rate; then use the most common one
        usual = (FRAMES, float(USUAL if rate < USUAL and most < 0.9 * rate else rate))
    units = {}
    for name, least in needed.items():
        if (own := footage[name][1]) and least <= own:
            units[name] = (FRAMES, round(own, 3))
        elif usual:
            units[name] = usual
    return units


def _are_whole(times: Iterable[float]) -> bool:
    return all(float(time).is_integer() for time in times)


def other_rate(videos: Mapping[str, VideoLabels], lengths: Mapping[str, int], clock: Clock = CLOCK) -> str:
    """Return a sentence if the features' lengths differ from the stated durations by a common factor; else empty.

    `lengths` is the number of chunks by video. At least half of the videos with a duration must differ, because single
    videos may have been cut.
    """
    stated = {name: video.duration for name, video in videos.items() if lengths.get(name) and video.duration}
    ratios = {name: clock.length(lengths[name]) / seconds for name, seconds in stated.items()}
    factor = median(ratios.values()) if ratios else 1.0
    alike = [
        name
        for name, ratio in ratios.items()
        # by more than an inexact end, and by more chunks than a tail that was dropped or padded
        if abs(ratio - 1) > SAME_RATE and abs(lengths[name] - lengths[name] / ratio) > 2
        if abs(ratio / factor - 1) < SAME_RATE
    ]
    if not alike or 2 * len(alike) < len(stated):
        return ""
    one, chunk, rate = alike[0], clock.seconds, factor * float(clock.rate)
    return (
        f"the features of {len(alike)} of {len(stated)} videos are {factor:.3g} times as long as the labels say "
        f"({one}: {lengths[one]} chunks of {chunk:.4g} s for {stated[one]:g} s): they are {rate:.3g} a second instead "
        f"of {float(clock.rate):g}, made at another frame rate, or not of these videos"
    )


def missing(wanted: Iterable[str], present: Collection[str], what: str, severity: str) -> Iterator[Finding]:
    """Yield findings for the ids that have no labels, features or video (`what`), each with a similar id."""
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
    """Raise LabelsError if the findings in the label file `source` contain an error; `files` lists several files."""
    errors = [found for found in findings if found.severity == ERROR]
    if not errors:
        return
    if alone := next((found for found in errors if found.kind == NO_MATCH), None):
        raise LabelsError(f"{source}: {alone.detail}.", MATCH_HINT)
    first, file = errors[0], shlex.join(files or (source,))
    hint = f"`lstr labels check {file} --json` lists them; correct them and run the command again."
    if all(found.kind == "no features" for found in errors):
        hint = "extract them with `lstr extract`, or skip these videos with --set skip_missing=true."
    elif first.kind in UNITS:
        rate = first.detail.rpartition("/")[2].partition(" ")[0]
        file = "FILE" if len(files) > 1 else file  # perhaps only one of the files counts frames
        hint = f"if so, convert them to seconds: `lstr labels convert {file} --frames {rate} -o seconds.json`."
    what = "error" if len(errors) == 1 else "errors"
    raise LabelsError(
        f"{source} has {len(errors)} {what}, first {first.kind} in {first.video!r} ({first.detail}).", hint
    )


def _check_video(
    classes: Collection[str], name: str, video: VideoLabels, footage: Footage | None, unit: tuple[str, float] | None
) -> Iterator[Finding]:
    if not video.subset:
        yield Finding(ERROR, "no subset", name, "other videos have one")
    sound = []
    for segment in video.segments:
        if error := find_error(segment, classes):
            yield Finding(ERROR, error[0], name, _written(segment))
            continue
        sound.append(segment)
        if segment.start == segment.end:
            yield Finding(WARNING, "zero length", name, _written(segment))
        if footage and not unit and segment.end > footage[0] + TAIL_S:
            yield Finding(WARNING, "past the end", name, f"{_written(segment)} of {footage[0]:g} s")
    if footage and unit and sound:
        first = min(sound, key=lambda segment: segment.start or segment.end)
        (kind, rate), time = unit, first.start or first.end
        noun = "frames" if kind == FRAMES else kind
        question = f"are these {noun}? {time:g}/{rate:g} = {time / rate:.2f} s"
        yield Finding(ERROR, kind, name, f"{_written(first)} of {footage[0]:.2f} s; {question}")
    if footage and sound and footage[2] > LATE_S:
        late = f"its first frame is {footage[2]:g} s after its sound, from which players count"
        yield Finding(WARNING, "late frames", name, f"{late}: times from a player are {footage[2]:g} s too late")
    order = attrgetter("label", "start", "end", "subject")
    for one, other in pairwise(sorted(sound, key=order)):
        if one == other:
            yield Finding(WARNING, "duplicate", name, _written(other))
    last_ends: dict[tuple[str, str], float] = {}
    for segment in sorted(set(sound), key=order):
        action = (segment.label, segment.subject)  # two animals can do the same action at the same time
        if segment.start < last_ends.get(action, 0.0):
            yield Finding(WARNING, "overlap in one class", name, _written(segment))
        last_ends[action] = max(segment.end, last_ends.get(action, 0.0))


def _written(segment: Segment) -> str:
    of = f" of {segment.subject}" if segment.subject else ""
    return f"{segment.label}{of} {segment.start:g}–{segment.end:g} s"
