"""Whether features go with a checkpoint: their recipe, and the videos that networks or the model have seen.

The record of each video says which networks had seen it at extraction: `"seen": ["rgb", "flow"]`, and the fold that the
networks lacked. Features without records, and those of weights that do not say what they have seen, as the published
ones, count as not seen.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path

from lstr.config import WindowConfig
from lstr.errors import RecipeError, SeenError
from lstr.extractors.recipe import differences
from lstr.extractors.streams import STREAMS, streams_of_model
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.features.dataset import Split
from lstr.pipelines.features.folder import FeatureFolder, open_features, seen_streams
from lstr.pipelines.model_files.networks import ALLOW, ARRAYS, mismatch_warnings, recipe_of, store_in_words

# By video id the streams whose network has seen it, without videos that none has seen.
Seen = dict[str, list[str]]


def open_learnt(path: str | Path, loaded: Checkpoint) -> FeatureFolder:
    """Open a feature folder with the clock of a checkpoint. Raises as `open_features`, and RecipeError."""
    return open_features(path).on(loaded.clock)


def check_recipe(loaded: Checkpoint, folder: FeatureFolder, allow: bool = False) -> list[str]:
    """Raise RecipeError, with the difference, if features and checkpoint have different recipes; return warnings.

    What the checkpoint does not take may differ. With `allow` the difference is a warning. Features of other people
    have no recipe: arrays with other names than those of the training are worth a warning.
    """
    trained, recipe = recipe_of(loaded), folder.recipe
    theirs = folder.describe()
    if bool(loaded.store) != bool(theirs) and (trained or recipe) and not allow:
        foreign, own = (loaded.path, folder.path) if loaded.store else (folder.path, loaded.path)
        verb = "has learnt from" if loaded.store else "holds"
        raise RecipeError(
            f"{foreign} {verb} features of other people{store_in_words(loaded.store or theirs or {})}, and {own} is of "
            "features that `lstr extract` makes.",
            "give features and a model that belong together.",
        )
    if not trained or not recipe:
        names = folder.only(streams_of_model(loaded.config.streams)).names
        known = (loaded.extra.get("data") or {}).get(ARRAYS) or []
        if set(known) <= set(names):
            return []
        return [
            f"{loaded.path} was trained on arrays called {', '.join(known)}, and these are called {', '.join(names)}: "
            "if another network made them, the scores are wrong."
        ]
    shared = set(recipe.streams) & set(trained.streams)
    # whatever folds the features are from, those of a video that no network has seen are those of `sha256`
    used = (recipe.narrowed(trained.streams) if shared else recipe).without_folds()
    different = differences(used, trained.without_folds())
    if different and not allow:
        raise RecipeError(
            f"{folder.path} and {loaded.path} were made by different recipes ({'; '.join(different)}).",
            f"extract the videos again with `--recipe {shlex.quote(str(loaded.path))}`, or add {ALLOW}.",
        )
    return mismatch_warnings(loaded, different)


def seen_in(split: Split, config: WindowConfig) -> Seen:
    """Return the videos of a split that a network has seen whose stream a model takes."""
    found = {
        video.id: [stream for stream in streams_of_model(config.streams) if stream in video.seen]
        for video in split.videos
    }
    return {video_id: streams for video_id, streams in found.items() if streams}


def check_unseen(loaded: Checkpoint, split: Split, allow: bool) -> list[str]:
    """Raise SeenError if networks have seen a video of a split; with `allow` return a warning instead."""
    seen = seen_in(split, loaded.config)
    if not seen:
        return []
    sentence = f"{seen_phrase(seen, len(split.videos), 'videos to score')}: new ones are likely to score lower."
    if not allow:
        raise SeenError(
            f"The {sentence}",
            "let `lstr learn` measure by networks that lack each video, or let --allow-seen mark the result.",
        )
    return [f"{loaded.path}: the {sentence}"]


def learnt_from(loaded: Checkpoint, ids: Iterable[str]) -> list[str]:
    """Return which of some videos, by id, a checkpoint or a network in its file was trained on."""
    known = {*(loaded.metrics.get("training_videos") or ()), *(loaded.about.get("seen") or ())}
    return sorted(known.intersection(ids))


def warn_of_learnt(loaded: Checkpoint, split: Split) -> list[str]:
    """Return a warning if a checkpoint was trained on some of the videos to score."""
    if not (learnt := learnt_from(loaded, (video.id for video in split.videos))):
        return []
    some = f"{len(learnt)} of the {len(split.videos)} videos to score, first {learnt[0]!r}"
    return [f"{loaded.path} has learnt from {some}: new ones are likely to score lower."]


def seen_phrase(seen: Seen, of: int, what: str) -> str:
    """Say how many of `of` videos were seen by which networks, and name the first of them."""
    return f"feature networks ({', '.join(streams_of(seen))}) have seen {len(seen)} of {of} {what}, first {min(seen)!r}"


def streams_of(seen: Seen) -> list[str]:
    """Return all streams in it, in their order."""
    return [stream for stream in STREAMS if any(stream in streams for streams in seen.values())]


def training_seen(loaded: Checkpoint) -> dict | None:
    """Return how many training videos of a checkpoint networks had seen, and of which streams; None if none."""
    data = loaded.extra.get("data")
    seen = data.get("seen") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(seen, dict):
        return None
    streams = [stream for stream in STREAMS if stream in str(seen.get("streams"))]
    return {"videos": seen.get("videos"), "of": data.get("videos"), "streams": streams}


def warn_of_training(loaded: Checkpoint) -> list[str]:
    """Return warnings about a checkpoint that was trained on features of seen videos."""
    seen = training_seen(loaded)
    if not seen:
        return []
    return [
        f"{loaded.path} was trained on features that look better than those of new videos: feature networks "
        f"({', '.join(seen['streams'])}) had seen {seen['videos']} of its {seen['of']} videos. "
        "`lstr learn` trains on features by networks that lack each video, and may do better."
    ]


def count_seen(folder: FeatureFolder) -> dict[str, dict[str, int]]:
    """Count the videos by the networks of their features, those without `fold K` or of `all`, and how many they saw.

    Empty if no record says it.
    """
    counts: dict[str, dict[str, int]] = {}
    for video_id in folder.ids():
        record = folder.read_record(video_id)
        seen = seen_streams(record)
        if record is not None and seen is not None:
            fold = record.get("fold")
            count = counts.setdefault("all" if fold is None else f"fold {fold}", {"videos": 0, "seen": 0})
            count["videos"] += 1
            count["seen"] += bool(seen)
    return dict(sorted(counts.items()))
