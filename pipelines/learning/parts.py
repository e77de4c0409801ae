"""Which videos are learnt from, which choose, and which are held out to measure the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels
from lstr.labels.recordings import recording_of
from lstr.labels.video_ids import check_match
from lstr.pipelines.training.folds import actions_of, round_robin

TRAINING, VALIDATION, TESTING = "training", "validation", "testing"
ONE_IN = 4  # recordings are held out for testing
CHOOSING_FROM = 15  # recordings to learn from, of which one in five is spared to choose epoch and thresholds
CHOOSING_ONE_IN = 5
N_FOLDS = 3


@dataclass(frozen=True)
class LabelParts:
    """Labels whose subsets are training, validation (may be empty) and testing, and how they came about."""

    labels: Labels
    sentence: str
    """How the result is measured"""
    folds: int = 0
    """Folds of the training videos, each held out once while every video is learnt from in the end; 0: without"""
    measured: int = 0
    """How many of the folds are held out; the videos of the others only teach"""

    def of(self, subset: str) -> list[str]:
        """The ids of a subset, sorted."""
        return sorted(i for i, video in self.labels.videos.items() if video.subset == subset)


def divide(
    labels: Labels,
    present: Collection[str],
    seen: Collection[str] = (),
    n_folds: int = 0,
    measured: int | None = None,
) -> LabelParts:
    """The labelled videos that are present, in training, validation and testing.

    Where labels call some videos training, those of other subsets than validation and testing have no part. With folds
    all but the testing ones are learnt from. Without, subsets that the labels have are kept (without testing,
    validation is held out in its place); where they have one subset or none, whole recordings are held out. seen: ids
    that networks have seen before, which cannot be held out; there are no folds then. measured: how many of the folds
    are held out, None for all. Raises LabelsError where nothing could be learnt from or held out.
    """
    check_match(labels.videos, present)
    named = _named(labels, present)
    videos, subsets = {i: labels.videos[i] for i in named}, set(named.values())
    if n_folds and not set(seen) & set(videos) and (by_folds := _by_folds(labels, named, n_folds, measured)):
        return by_folds
    if subsets & {TESTING, VALIDATION}:
        divided = named
        if TESTING not in subsets:
            divided = {i: TESTING if subset == VALIDATION else subset for i, subset in divided.items()}
        testing = [i for i, subset in divided.items() if subset == TESTING]
        if unfit := [i for i in testing if i in seen]:
            raise LabelsError(
                f"What the networks begin with has seen {len(unfit)} of the testing videos, first {unfit[0]!r}.",
                "hold out other videos, or leave out --init.",
            )
        what = "video" if len(testing) == 1 else "videos"
        sentence = f"measured on the {len(testing)} {what} that the labels hold out"
    else:
        divided, sentence = _by_recording(labels, sorted(videos), seen)
    parts = {i: replace(video, subset=divided[i]) for i, video in videos.items()}
    return LabelParts(replace(labels, videos=parts, has_subsets=True), sentence)


def _named(labels: Labels, present: Collection[str]) -> dict[str, str]:
    """What labels call the videos that are present and have a part: training, validation or testing, by id.

    Where they call none training, all but the testing ones are. Raises LabelsError where none is left to learn from.
    """
    named = {i: video.subset if labels.has_subsets else TRAINING for i, video in labels.videos.items()}
    teach = {TRAINING, VALIDATION} if TRAINING in named.values() else {*named.values()} - {TESTING}
    found = {i: subset for i, subset in named.items() if i in present}
    kept = {i: subset for i, subset in found.items() if subset in (*teach, TESTING)}
    if not teach & {*kept.values()}:
        raise LabelsError(
            f"None of the labelled videos here is for training: the labels call them {few(sorted({*found.values()}))}.",
            "add videos that the labels call training, or leave the subsets out of the labels.",
        )
    if TRAINING not in kept.values():
        kept = {i: subset if subset == TESTING else TRAINING for i, subset in kept.items()}
    return kept


def _by_folds(labels: Labels, named: Mapping[str, str], n_folds: int, measured: int | None) -> LabelParts | None:
    """All videos but those for testing as training, in at most so many folds; None where a fold holds all actions."""
    divided = {i: TESTING if subset == TESTING else TRAINING for i, subset in named.items()}
    learnt = [i for i, subset in divided.items() if subset == TRAINING]
    folds = folds_of(learnt, n_folds)
    if not folds or not all(any(actions_of(labels, i) for i in learnt if i not in fold) for fold in folds):
        return None
    held = folds[:measured]
    sentence = f"measured on models that each lacked the video, in {len(folds)} folds of all {len(learnt)} videos"
    if len(held) < len(folds):
        some = few(sorted(i for fold in held for i in fold))
        sentence = f"measured on {sum(map(len, held))} of {len(learnt)} videos ({some}), by models that lacked them"
    if n_held := len(divided) - len(learnt):
        what = "video" if n_held == 1 else "videos"
        sentence = f"measured on the {n_held} {what} that the labels hold out, which teach nothing"
    parts = {i: replace(labels.videos[i], subset=subset) for i, subset in divided.items()}
    return LabelParts(replace(labels, videos=parts, has_subsets=True), sentence, len(folds), len(held))


def _by_recording(labels: Labels, ids: Sequence[str], seen: Collection[str]) -> tuple[dict[str, str], str]:
    """The subset of each id, whole recordings held out, and a sentence that states it."""
    found: dict[str, set[str]] = {}
    for video_id in ids:
        found.setdefault(recording_of(video_id), set()).update(actions_of(labels, video_id))
    shows = dict(sorted(found.items()))  # the classes that each recording shows
    if len(shows) < 2:
        raise LabelsError(
            f"All labelled videos are of one recording, {next(iter(shows))!r}: none is left to measure on.",
            "add videos of another day or place, or name subsets in the labels.",
        )
    known = {recording_of(video_id) for video_id in seen}
    testing = _held_out(shows, max(1, round(len(shows) / ONE_IN)), known)
    left = {recording: classes for recording, classes in shows.items() if recording not in testing}
    choosing = _held_out(left, len(left) // CHOOSING_ONE_IN, known) if len(left) >= CHOOSING_FROM else set()
    subset = {TESTING: testing, VALIDATION: choosing}
    divided = {i: next((name for name, held in subset.items() if recording_of(i) in held), TRAINING) for i in ids}
    some = few(sorted(testing))
    return divided, f"measured on {len(testing)} of {len(shows)} recordings held out here ({some})"


def _held_out(shows: Mapping[str, set[str]], wanted: int, known: Collection[str]) -> set[str]:
    """So many recordings, spread over the sorted ones, that show most classes and leave no class without another.

    None of those `known` to the networks. Raises LabelsError where every other recording alone shows a class.
    """
    names = list(shows)
    step = len(names) / max(1, wanted)
    evenly = [names[int(step * (at + 0.5))] for at in range(wanted)]
    order = [*evenly, *(name for name in names if name not in evenly)]
    held: set[str] = set()
    covered: set[str] = set()
    while len(held) < wanted:
        fitting = [name for name in order if name not in (*held, *known) and _spared(name, shows, held)]
        if not fitting:
            break
        best = max(fitting, key=lambda name: len(shows[name] - covered))  # the first of equals, so evenly
        held.add(best)
        covered |= shows[best]
    if not held:
        raise LabelsError(
            "Each new recording alone shows an action that no other shows: none can be held out to measure on.",
            "label each action in two recordings at least, or name subsets in the labels.",
        )
    return held


def _spared(name: str, shows: Mapping[str, set[str]], held: Collection[str]) -> bool:
    """Whether the others, without those held out, show all that a recording shows."""
    others = [classes for other, classes in shows.items() if other != name and other not in held]
    return bool(others) and shows[name] <= set().union(*others)


def folds_of(ids: Sequence[str], n_folds: int = N_FOLDS) -> list[list[str]]:
    """The ids in folds of whole recordings; as many as there are recordings, at most `n_folds`, none of one."""
    folds: dict[int, list[str]] = {}
    for video_id, fold in round_robin(ids, n_folds).items():
        folds.setdefault(fold, []).append(video_id)
    return [folds[fold] for fold in sorted(folds)] if len(folds) > 1 else []
