"""Divide videos into training, validation and testing, or into folds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels
from lstr.labels.video_ids import check_match
from lstr.pipelines.training.training_videos import (
    actions_by_recording,
    actions_in,
    choose_recordings,
    choose_validation,
    recordings_of,
    round_robin,
)

TRAINING, VALIDATION, TESTING = "training", "validation", "testing"
HELD_OUT_SHARE = 4  # one in this number of recordings is held out for testing
N_FOLDS = 3


@dataclass(frozen=True)
class Division:
    """A division of labelled videos into training, validation (may be empty) and testing."""

    labels: Labels
    sentence: str  # how the result is measured, as a sentence
    folds: int = 0  # number of folds for cross-validation over the training videos; 0 if videos are held out instead
    contents: Mapping[str, str] = field(default_factory=dict)  # the SHA-256 of each file that may have a copy, by id

    def folds_of(self, ids: Collection[str], n_folds: int = N_FOLDS) -> list[list[str]]:
        """Divide ids into at most `n_folds` folds of whole recordings; return no folds if there is one recording."""
        folds: dict[int, list[str]] = {}
        for video_id, fold in round_robin(ids, n_folds, self.contents).items():
            folds.setdefault(fold, []).append(video_id)
        return [folds[fold] for fold in sorted(folds)] if len(folds) > 1 else []

    def of(self, subset: str) -> list[str]:
        """Return the sorted ids of a subset."""
        return sorted(i for i, video in self.labels.videos.items() if video.subset == subset)


def divide(
    labels: Labels,
    present: Collection[str],
    seen: Collection[str] = (),
    n_folds: int = 0,
    contents: Mapping[str, str] | None = None,
) -> Division:
    """Divide the available labelled videos into training, validation and testing.

    With folds, the networks are trained on all videos except the testing subset. Without folds, the subsets of the
    labels are used; without a testing subset, validation is held out instead; with only one subset, whole recordings
    are held out. If the labels have a training subset, videos of subsets other than training, validation and testing
    are ignored.

    Args:
        labels: The labels of all videos.
        present: Ids of the videos that can be read.
        seen: Ids of videos that the initial networks were trained on. They cannot be held out, so there are no folds.
        n_folds: The largest number of folds; 0 to hold videos out.
        contents: The SHA-256 of files by id. Copies of a file share a fold, and are in one subset.

    Raises:
        LabelsError: No video is left for training or for testing, or copies of a file are in two subsets.
    """
    contents = contents or {}
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
    originals: dict[str, str] = {}
    for video_id in sorted(named.keys() & contents.keys()):
        original = originals.setdefault(contents[video_id], video_id)
        if named[original] != named[video_id]:
            raise LabelsError(
                f"{original!r} and {video_id!r} are the same file, but their subsets are {named[original]} and "
                f"{named[video_id]}.",
                "delete one of the two, or give both the same subset.",
            )
    testing, folds = [i for i, subset in named.items() if subset == TESTING], list[list[str]]()
    if n_folds and not {*seen} & {*named}:
        training = [i for i in named if i not in testing]
        folds = Division(labels, "", contents=contents).folds_of(training, n_folds)
        # the videos outside each fold must contain an action
        if not all(any(actions_in(labels, i) for i in training if i not in fold) for fold in folds):
            folds = []
    sentence = ""
    if folds:
        named = {i: TESTING if i in testing else TRAINING for i in named}
        if not testing:
            sentence = f"measured by cross-validation in {len(folds)} folds of all {len(training)} videos"
    elif {TESTING, VALIDATION} & {*named.values()}:
        if not testing:
            named = {i: TESTING if subset == VALIDATION else subset for i, subset in named.items()}
            testing = [i for i, subset in named.items() if subset == TESTING]
        if already_seen := [i for i in testing if i in seen]:
            raise LabelsError(
                f"The initial networks were trained on {len(already_seen)} testing videos, first {already_seen[0]!r}.",
                "hold out other videos, or omit --init.",
            )
    else:
        named, sentence = hold_out_recordings(labels, sorted(named), seen, contents)
    if not sentence:
        count = "1 video" if len(testing) == 1 else f"{len(testing)} videos"
        sentence = f"measured on the {count} that the labels hold out"
    videos = {i: replace(labels.videos[i], subset=subset) for i, subset in named.items()}
    return Division(replace(labels, videos=videos, has_subsets=True), sentence, len(folds), contents)


def hold_out_recordings(
    labels: Labels, ids: Sequence[str], seen: Collection[str], contents: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """Hold out whole recordings; return the subset of each id, and a sentence about it. Arguments as for `divide`.

    Raises LabelsError if no recording can be held out.
    """
    recordings = recordings_of({*ids, *seen}, contents)
    actions = actions_by_recording(labels, {video_id: recordings[video_id] for video_id in ids})
    if len(actions) < 2:
        raise LabelsError(
            f"All labelled videos are of one recording, {next(iter(actions))!r}, so none can be held out for testing.",
            "add videos of another day or place, or name subsets in the labels.",
        )
    known = {recordings[video_id] for video_id in seen}
    testing = choose_recordings(actions, max(1, round(len(actions) / HELD_OUT_SHARE)), known)
    if not testing:
        raise LabelsError(
            "Each new recording is the only one with some action, so none can be held out to measure the model.",
            "label each action in two recordings at least, or name subsets in the labels.",
        )
    left = {recording: shown for recording, shown in actions.items() if recording not in testing}
    validation = choose_validation(left, known)
    subset_of = {**dict.fromkeys(testing, TESTING), **dict.fromkeys(validation, VALIDATION)}
    sentence = f"measured on {len(testing)} of {len(actions)} recordings held out here ({few(sorted(testing))})"
    return {i: subset_of.get(recordings[i], TRAINING) for i in ids}, sentence
