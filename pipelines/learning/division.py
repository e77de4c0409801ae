"""Which videos the networks and models learn from, and which ones measure the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels
from lstr.labels.video_ids import check_match, recording_of
from lstr.pipelines.training.training_videos import actions_of, round_robin

TRAINING, VALIDATION, TESTING = "training", "validation", "testing"
HELD_OUT_SHARE = 4  # one recording of so many is held out for testing
MIN_RECORDINGS_TO_VALIDATE = 15  # with fewer training recordings, each one is needed to learn from
VALIDATION_SHARE = 5  # one training recording of so many chooses epochs and thresholds
N_FOLDS = 3


@dataclass(frozen=True)
class Division:
    """Labels whose subsets are training, validation (may be empty) and testing."""

    labels: Labels
    sentence: str
    """How the result is measured, for people."""
    folds: int = 0
    """Folds of the training videos, each scored by networks and models that have not seen it; 0 if videos are held out
    instead."""

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
    subsets = {i: video.subset if labels.has_subsets else TRAINING for i, video in labels.videos.items()}
    usable = {TRAINING, VALIDATION} if TRAINING in subsets.values() else {*subsets.values()} - {TESTING}
    subsets = {i: subset for i, subset in subsets.items() if i in present}
    named = {i: subset for i, subset in subsets.items() if subset in (*usable, TESTING)}
    if not usable & {*named.values()}:
        called = few(sorted({*subsets.values()}))
        raise LabelsError(
            f"None of the labelled videos is for training: their subset is {called}.",
            "add videos of the subset training, or remove the subsets from the labels.",
        )
    if TRAINING not in named.values():
        named = {i: subset if subset == TESTING else TRAINING for i, subset in named.items()}
    testing, folds = [i for i, subset in named.items() if subset == TESTING], list[list[str]]()
    if n_folds and not {*seen} & {*named}:
        training = [i for i in named if i not in testing]
        folds = folds_of(training, n_folds)
        # without a fold, some action must be left to learn
        if not all(any(actions_of(labels, i) for i in training if i not in fold) for fold in folds):
            folds = []
    if folds:
        named = {i: TESTING if i in testing else TRAINING for i in named}
        sentence = f"measured by cross-validation in {len(folds)} folds of all {len(training)} videos"
        if testing:
            sentence = f"measured on the {count_videos(testing)} that the labels hold out"
    elif {TESTING, VALIDATION} & {*named.values()}:
        if not testing:
            named = {i: TESTING if subset == VALIDATION else subset for i, subset in named.items()}
            testing = [i for i, subset in named.items() if subset == TESTING]
        if already_seen := [i for i in testing if i in seen]:
            raise LabelsError(
                f"The initial networks have seen {len(already_seen)} of the testing videos, first {already_seen[0]!r}.",
                "hold out other videos, or omit --init.",
            )
        sentence = f"measured on the {count_videos(testing)} that the labels hold out"
    else:
        named, sentence = hold_out_recordings(labels, sorted(named), {recording_of(video_id) for video_id in seen})
    videos = {i: replace(labels.videos[i], subset=subset) for i, subset in named.items()}
    return Division(replace(labels, videos=videos, has_subsets=True), sentence, len(folds))


def count_videos(ids: Collection[str]) -> str:
    """Return "1 video" or "2 videos"."""
    return f"{len(ids)} video{'' if len(ids) == 1 else 's'}"


def folds_of(ids: Sequence[str], n_folds: int = N_FOLDS) -> list[list[str]]:
    """Divide ids into at most `n_folds` folds of whole recordings; return no folds if there is one recording."""
    folds: dict[int, list[str]] = {}
    for video_id, fold in round_robin(ids, n_folds).items():
        folds.setdefault(fold, []).append(video_id)
    return [folds[fold] for fold in sorted(folds)] if len(folds) > 1 else []


def hold_out_recordings(labels: Labels, ids: Sequence[str], known: Collection[str]) -> tuple[dict[str, str], str]:
    """Return the subset of each id, whole recordings being held out, and a sentence that says so.

    known: recordings that the initial networks have seen. Raises LabelsError if no recording can be held out.
    """
    actions: dict[str, set[str]] = {}
    for video_id in ids:
        actions.setdefault(recording_of(video_id), set()).update(actions_of(labels, video_id))
    actions = dict(sorted(actions.items()))
    if len(actions) < 2:
        raise LabelsError(
            f"All labelled videos are of one recording, {next(iter(actions))!r}: no other can measure the model.",
            "add videos of another day or place, or name subsets in the labels.",
        )
    testing = choose_recordings(actions, max(1, round(len(actions) / HELD_OUT_SHARE)), known)
    left = {recording: shown for recording, shown in actions.items() if recording not in testing}
    n_validation = len(left) // VALIDATION_SHARE if len(left) >= MIN_RECORDINGS_TO_VALIDATE else 0
    validation = choose_recordings(left, n_validation, known) if n_validation else set()
    subset_of = {**dict.fromkeys(testing, TESTING), **dict.fromkeys(validation, VALIDATION)}
    sentence = f"measured on {len(testing)} of {len(actions)} recordings held out here ({few(sorted(testing))})"
    return {i: subset_of.get(recording_of(i), TRAINING) for i in ids}, sentence


def choose_recordings(actions: Mapping[str, set[str]], wanted: int, known: Collection[str]) -> set[str]:
    """Choose recordings to hold out: evenly spaced, with most actions, and no action without another recording.

    actions: of each recording. known: recordings that are not chosen. Raises LabelsError if each other recording is the
    only one of an action.
    """
    names, step = list(actions), len(actions) / wanted
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
            "Each new recording is the only one with some action, so none can be held out to measure the model.",
            "label each action in two recordings at least, or name subsets in the labels.",
        )
    return chosen
