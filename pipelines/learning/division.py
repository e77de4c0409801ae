"""Which videos the networks and models learn from, and which ones measure the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels
from lstr.labels.video_ids import check_match, recording_of
from lstr.pipelines.training.folds import actions_of, round_robin

TRAINING, VALIDATION, TESTING = "training", "validation", "testing"
HELD_OUT_SHARE = 4  # one recording of so many is held out for testing
MIN_RECORDINGS_TO_VALIDATE = 15  # with fewer training recordings, each one is needed to learn from
VALIDATION_SHARE = 5  # one training recording of so many chooses epochs and thresholds
N_FOLDS = 3


@dataclass(frozen=True)
class Division:
    """Labels whose subsets are training, validation (may be empty) and testing.

    Attributes:
        labels: The labels with these subsets.
        sentence: How the result is measured, for people.
        folds: The number of folds of the training videos. Each fold is scored by networks and models that have not
            seen it. 0 if videos are held out instead.
    """

    labels: Labels
    sentence: str
    folds: int = 0

    def of(self, subset: str) -> list[str]:
        """Return the sorted ids of a subset."""
        return sorted(i for i, video in self.labels.videos.items() if video.subset == subset)


def divide(labels: Labels, present: Collection[str], seen: Collection[str] = (), n_folds: int = 0) -> Division:
    """Divide the labelled videos that are present into training, validation and testing.

    With folds, the networks learn from all videos except those that the labels call testing. Without folds, subsets
    of the labels are kept; if there is no testing subset, validation is held out instead; if there is only one subset,
    whole recordings are held out. If the labels call some videos training, videos of other subsets than validation and
    testing are ignored.

    Args:
        labels: The labels of all videos.
        present: Ids of the videos that can be read.
        seen: Ids of videos that the initial networks have learnt from. They cannot be held out, so there are no folds.
        n_folds: The largest number of folds; 0 to hold videos out.

    Raises:
        LabelsError: No video is left to learn from or to hold out.
    """
    check_match(labels.videos, present)
    named = _subsets_of(labels, present)
    subsets = {*named.values()}
    if n_folds and not {*seen} & {*named} and (division := _divide_into_folds(labels, named, n_folds)):
        return division
    if subsets & {TESTING, VALIDATION}:
        if TESTING not in subsets:
            named = {i: TESTING if subset == VALIDATION else subset for i, subset in named.items()}
        testing = [i for i, subset in named.items() if subset == TESTING]
        if already_seen := [i for i in testing if i in seen]:
            raise LabelsError(
                f"The initial networks have seen {len(already_seen)} of the testing videos, first {already_seen[0]!r}.",
                "hold out other videos, or leave out --init.",
            )
        sentence = f"measured on the {_count(len(testing))} that the labels hold out"
    else:
        named, sentence = _hold_out_recordings(labels, sorted(named), seen)
    return Division(_with_subsets(labels, named), sentence)


def folds_of(ids: Sequence[str], n_folds: int = N_FOLDS) -> list[list[str]]:
    """Divide ids into at most `n_folds` folds of whole recordings; return no folds if there is one recording."""
    folds: dict[int, list[str]] = {}
    for video_id, fold in round_robin(ids, n_folds).items():
        folds.setdefault(fold, []).append(video_id)
    return [folds[fold] for fold in sorted(folds)] if len(folds) > 1 else []


def _count(n_videos: int) -> str:
    return f"{n_videos} video{'' if n_videos == 1 else 's'}"


def _with_subsets(labels: Labels, subsets: Mapping[str, str]) -> Labels:
    videos = {i: replace(labels.videos[i], subset=subset) for i, subset in subsets.items()}
    return replace(labels, videos=videos, has_subsets=True)


def _subsets_of(labels: Labels, present: Collection[str]) -> dict[str, str]:
    """Return training, validation or testing for each usable video; raise LabelsError if none is for training."""
    named = {i: video.subset if labels.has_subsets else TRAINING for i, video in labels.videos.items()}
    teaching = {TRAINING, VALIDATION} if TRAINING in named.values() else {*named.values()} - {TESTING}
    found = {i: subset for i, subset in named.items() if i in present}
    kept = {i: subset for i, subset in found.items() if subset in (*teaching, TESTING)}
    if not teaching & {*kept.values()}:
        raise LabelsError(
            f"None of the labelled videos here is for training: the labels call them {few(sorted({*found.values()}))}.",
            "add videos that the labels call training, or leave the subsets out of the labels.",
        )
    if TRAINING not in kept.values():
        kept = {i: subset if subset == TESTING else TRAINING for i, subset in kept.items()}
    return kept


def _divide_into_folds(labels: Labels, named: Mapping[str, str], n_folds: int) -> Division | None:
    """Return all videos except testing as training, in folds; None if all actions are in a single fold."""
    subsets = {i: TESTING if subset == TESTING else TRAINING for i, subset in named.items()}
    training = [i for i, subset in subsets.items() if subset == TRAINING]
    folds = folds_of(training, n_folds)
    if not folds or not all(any(actions_of(labels, i) for i in training if i not in fold) for fold in folds):
        return None
    sentence = f"measured on models that each lacked the video, in {len(folds)} folds of all {len(training)} videos"
    if n_testing := len(subsets) - len(training):
        sentence = f"measured on the {_count(n_testing)} that the labels hold out, which teach nothing"
    return Division(_with_subsets(labels, subsets), sentence, len(folds))


def _hold_out_recordings(labels: Labels, ids: Sequence[str], seen: Collection[str]) -> tuple[dict[str, str], str]:
    """Return the subset of each id, whole recordings being held out, and a sentence that says so."""
    actions: dict[str, set[str]] = {}
    for video_id in ids:
        actions.setdefault(recording_of(video_id), set()).update(actions_of(labels, video_id))
    actions = dict(sorted(actions.items()))
    if len(actions) < 2:
        raise LabelsError(
            f"All labelled videos are of one recording, {next(iter(actions))!r}: none is left to measure on.",
            "add videos of another day or place, or name subsets in the labels.",
        )
    known = {recording_of(video_id) for video_id in seen}
    testing = _choose_recordings(actions, max(1, round(len(actions) / HELD_OUT_SHARE)), known)
    left = {recording: shown for recording, shown in actions.items() if recording not in testing}
    n_validation = len(left) // VALIDATION_SHARE if len(left) >= MIN_RECORDINGS_TO_VALIDATE else 0
    validation = _choose_recordings(left, n_validation, known) if n_validation else set()
    subset_of = {**dict.fromkeys(testing, TESTING), **dict.fromkeys(validation, VALIDATION)}
    sentence = f"measured on {len(testing)} of {len(actions)} recordings held out here ({few(sorted(testing))})"
    return {i: subset_of.get(recording_of(i), TRAINING) for i in ids}, sentence


def _choose_recordings(actions: Mapping[str, set[str]], wanted: int, known: Collection[str]) -> set[str]:
    """Choose recordings to hold out: evenly spaced, with most actions, and no action without another recording.

    actions: of each recording. known: recordings that the initial networks have seen, which are not chosen. Raises
    LabelsError if each other recording is the only one of an action.
    """
    names = list(actions)
    step = len(names) / wanted
    evenly = [names[int(step * (at + 0.5))] for at in range(wanted)]
    order = [*evenly, *(name for name in names if name not in evenly)]
    chosen: set[str] = set()
    covered: set[str] = set()

    def is_dispensable(name: str) -> bool:
        others = [shown for other, shown in actions.items() if other != name and other not in chosen]
        return bool(others) and actions[name] <= set().union(*others)

    while len(chosen) < wanted:
        fitting = [name for name in order if name not in (*chosen, *known) and is_dispensable(name)]
        if not fitting:
            break
        best = max(fitting, key=lambda name: len(actions[name] - covered))  # the first of equals, so evenly
        chosen.add(best)
        covered |= actions[best]
    if not chosen:
        raise LabelsError(
            "Each new recording is the only one of an action: no recording can be held out to measure on.",
            "label each action in two recordings at least, or name subsets in the labels.",
        )
    return chosen
