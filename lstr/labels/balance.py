"""What a set of labels can teach and test: examples and spellings of classes, subsets, and clips of one recording."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator

from lstr.labels.label_set import Labels, actions_of
from lstr.labels.video_ids import recording_of

# Examples of a class; fewer teach little, and tell less in a test.
FEW = 5

# Marks that a letter of Latin, Greek or Cyrillic has above or below it; those of other scripts make other letters.
ACCENTS = re.compile("[\u0300-\u036f]")
BETWEEN = re.compile(r"[\s_-]+")
TESTED = ("testing", "validation")


def training_subset(labels: Labels) -> str | None:
    """The subset to train on: "validation" where only that and testing are, as in THUMOS'14; None for neither."""
    present = {video.subset for video in labels.videos.values()}
    if "training" in present:
        return "training"
    return "validation" if {"validation", "testing"} <= present else None


def never_trained(labels: Labels) -> Iterator[tuple[str, str]]:
    """Classes that are tested and have no example in training, each with a sentence."""
    trained = training_subset(labels)
    if trained is None:
        return
    taught = _examples(labels, trained)
    tested = {subset: _examples(labels, subset) for subset in TESTED if subset != trained}
    for name in actions_of(labels):
        counts = [f"{count[name]} in {subset}" for subset, count in tested.items() if count[name]]
        if counts and not taught[name]:
            yield name, f"{name}: {', '.join(counts)}, none in {trained}"


def few_examples(labels: Labels) -> Iterator[str]:
    """Classes with fewer than FEW examples to learn from; of labels that train nothing, in all of them."""
    trained = training_subset(labels)
    counts = _examples(labels, trained)
    untaught = {name for name, _ in never_trained(labels)}
    for name in actions_of(labels):
        if counts[name] < FEW and name not in untaught:
            number = f"{counts[name] or 'no'} {'example' if counts[name] == 1 else 'examples'}"
            yield f"{name}: {number}" + (f" in {trained}" if trained else "")


def nothing_labelled(labels: Labels) -> str:
    """A sentence where there are actions, and no video has one; else empty."""
    videos = labels.videos.values()
    if not videos or not actions_of(labels) or any(video.segments or video.n_chunks is not None for video in videos):
        return ""
    return f"no action is labelled in {'the only video' if len(videos) == 1 else f'any of the {len(videos)} videos'}"


def one_subset(labels: Labels) -> str:
    """A sentence where the file puts several videos all into one subset; else empty."""
    subsets = {video.subset for video in labels.videos.values()}
    if len(labels.videos) < 2 or len(subsets) != 1 or not labels.has_subsets:
        return ""
    (subset,) = subsets
    missing = "nothing is left to test on" if subset == "training" else "nothing is left to train on"
    return f"all {len(labels.videos)} videos are in {subset}: {missing}"


def split_recordings(labels: Labels) -> Iterator[str]:
    """Recordings whose clips are in more than one subset, each as a sentence."""
    clips: dict[str, list[str]] = defaultdict(list)
    for name in labels.videos:
        clips[recording_of(name)].append(name)
    for recording, names in clips.items():
        first: dict[str, str] = {}
        for name in names:
            first.setdefault(labels.videos[name].subset, name)
        if len(first) > 1:
            yield f"{recording}: " + ", ".join(f"{name} in {subset}" for subset, name in first.items())


def spellings_of(labels: Labels) -> Iterator[str]:
    """A question for each class that is written in several ways, which differ in case, accents or spaces alone."""
    together = defaultdict(list)
    for name in actions_of(labels):
        together[_letters(name)].append(name)
    counts = Counter(segment.label for video in labels.videos.values() for segment in video.segments)
    for names in together.values():
        if len(names) > 1:
            most, *others = sorted(names, key=lambda name: -counts[name])
            each = ", ".join(f"{name!r} ({counts[name]})" for name in (most, *others))
            settings = " ".join(f"--rename {shlex.quote(f'{name}={most}')}" for name in others)
            yield f"are these one class? {each}; if so: lstr labels convert FILE {settings} -o renamed.json"


def _letters(name: str) -> str:
    """What two spellings of a name have in common."""
    plain = ACCENTS.sub("", unicodedata.normalize("NFKD", name))
    return BETWEEN.sub("", plain).casefold() or name


def _examples(labels: Labels, subset: str | None) -> Counter[str]:
    """Segments of each class in a subset, or in all."""
    return Counter(
        segment.label
        for video in labels.videos.values()
        if subset in (None, video.subset)
        for segment in video.segments
    )
