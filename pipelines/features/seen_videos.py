"""Videos that the networks of their features have seen in training: new ones are likely to score lower.

What a network has seen is written in the record of each video at extraction: `"seen": ["rgb", "flow"]`, and the fold
that the networks were blind to. Features without records (from elsewhere), and those of weights that do not state
what they have seen, as the published ones, count as not seen.
"""

from collections.abc import Iterable

from lstr.config import WindowConfig
from lstr.errors import SeenError
from lstr.extractors.streams import STREAMS, streams_of_model
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.features.any_folder import seen_streams
from lstr.pipelines.features.dataset import Split
from lstr.pipelines.features.folder import FeatureFolder

# By video id the streams whose network has seen it; videos that none has seen are not in it.
Seen = dict[str, list[str]]


def seen_in(split: Split, config: WindowConfig) -> Seen:
    """The videos of a split that networks have seen whose streams a model takes."""
    found = {
        video.id: [stream for stream in streams_of_model(config.streams) if stream in video.seen]
        for video in split.videos
    }
    return {video_id: streams for video_id, streams in found.items() if streams}


def check_unseen(loaded: Checkpoint, split: Split, allow: bool) -> list[str]:
    """Raise SeenError when networks have seen a video of a split; with `allow` that is a sentence to warn with."""
    seen = seen_in(split, loaded.config)
    if not seen:
        return []
    sentence = f"{seen_phrase(seen, len(split.videos), 'videos to score')}: new ones are likely to score lower."
    if not allow:
        raise SeenError(
            f"The {sentence}",
            "extract with a weights folder that `lstr finetune --folds` made, or let --allow-seen mark the result.",
        )
    return [f"{loaded.path}: the {sentence}"]


def learnt_from(loaded: Checkpoint, ids: Iterable[str]) -> list[str]:
    """Which of some videos, by id, a checkpoint itself or a network in its file has learnt from."""
    known = {*(loaded.metrics.get("training_videos") or ()), *(loaded.about.get("seen") or ())}
    return sorted(known.intersection(ids))


def warn_of_learnt(loaded: Checkpoint, split: Split) -> list[str]:
    """A warning where a checkpoint has learnt from some of the videos to score."""
    if not (learnt := learnt_from(loaded, (video.id for video in split.videos))):
        return []
    some = f"{len(learnt)} of the {len(split.videos)} videos to score, first {learnt[0]!r}"
    return [f"{loaded.path} has learnt from {some}: new ones are likely to score lower."]


def seen_phrase(seen: Seen, of: int, what: str) -> str:
    """How many of `of` videos are seen by which networks, and the first of them, in words."""
    return f"feature networks ({', '.join(streams_of(seen))}) have seen {len(seen)} of {of} {what}, first {min(seen)!r}"


def streams_of(seen: Seen) -> list[str]:
    """All streams in it, in their order."""
    return [stream for stream in STREAMS if any(stream in streams for streams in seen.values())]


def training_seen(loaded: Checkpoint) -> dict | None:
    """How many videos that a checkpoint was trained on networks had seen, of which streams; None where none."""
    data = loaded.extra.get("data")
    seen = data.get("seen") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(seen, dict):
        return None
    streams = [stream for stream in STREAMS if stream in str(seen.get("streams"))]
    return {"videos": seen.get("videos"), "of": data.get("videos"), "streams": streams}


def warn_of_training(loaded: Checkpoint) -> list[str]:
    """Warnings about a checkpoint that was trained on features of seen videos."""
    seen = training_seen(loaded)
    if not seen:
        return []
    return [
        f"{loaded.path} was trained on features that look better than those of new videos: feature networks "
        f"({', '.join(seen['streams'])}) had seen {seen['videos']} of its {seen['of']} videos. "
        "Trained on features by weights that `lstr finetune --folds` made, it may do better."
    ]


def count_seen(folder: FeatureFolder) -> dict[str, dict[str, int]]:
    """How many videos have features of networks blind to `fold K`, or trained on `all`, and how many those had seen.

    Empty where no record states it.
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
