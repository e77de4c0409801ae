"""What a model was taught with, as its file says it: how much video, which files, how many labelled actions."""

from collections import Counter
from pathlib import Path
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.preparation import Learning


def data_of(planned: Learning, features: Path) -> dict[str, Any]:
    """Videos, seconds and labelled actions by subset, and the names of the files without their folders.

    A video counts as long as its features are, and not at all where it has none.
    """
    labels, subsets = planned.parts.labels, dict[str, dict[str, Any]]()
    lengths = {i: length for i, length in open_features(features).lengths().items() if i in labels.videos}
    for video_id, chunks in lengths.items():
        video = labels.videos[video_id]
        about = subsets.setdefault(video.subset, {"videos": 0, "seconds": 0.0, "labels": Counter()})
        about["videos"] += 1
        about["seconds"] += chunks / FEATURES_PER_SECOND
        about["labels"].update(s.label for s in video.segments if s.label not in (BACKGROUND, AMBIGUOUS))
    return {"subsets": subsets, "files": sorted(planned.videos[video_id].name for video_id in lengths)}
