"""The next command after another one, as words, with the paths of that one.

Unknown paths are VIDEOS, VIDEO or LABELS.
"""

from collections.abc import Sequence
from pathlib import Path


def after_fetch(published: str) -> list[str]:
    """Extract with fetched weights, by their published name: with the recipe of that name, else the largest recipe that
    uses them; nothing if there is neither."""
    from lstr.extractors.presets import PRESETS  # which every other command reads when it is called

    having = [name for name, one in PRESETS.items() if {part.weights for part in one.parts.values()} == {published}]
    extract = ["lstr", "extract", "VIDEOS", "-o", "features"]
    if published in PRESETS:
        recipe = [] if PRESETS[published] == PRESETS["faithful"] else ["--recipe", published]
        return [*extract, *recipe, "--weights", published]
    return [*extract, "--recipe", max(reversed(having), key=lambda name: len(PRESETS[name].parts))] if having else []


def after_finetune(weights: Path, videos: Sequence[str], lists: Sequence[str]) -> list[str]:
    """Extract with the new networks; `lists` are the paths that --list named."""
    sources = [*videos, *lists] if len(lists) <= 3 else ["VIDEOS"]
    return ["lstr", "extract", *sources, "-o", str(weights.with_name("features")), "--recipe", str(weights)]


def after_extract(features: object) -> list[str]:
    """Train on the features."""
    return ["lstr", "train", str(features), "--labels", "LABELS", "-o", "run"]


def after_train(checkpoint: Path, features: Sequence[str], labels: str, held_out: bool) -> list[str]:
    """Evaluate if the labels have videos to evaluate on, else detect."""
    if not held_out:
        return after_evaluate(str(checkpoint))
    report = str(checkpoint.with_name("evaluation"))
    return ["lstr", "evaluate", str(checkpoint), *features, "--labels", labels, "-o", report]


def after_evaluate(checkpoint: str) -> list[str]:
    """Detect on a new video."""
    return ["lstr", "detect", "VIDEO", "-c", checkpoint, "-o", "timeline"]


def after_convert(to: str, files: Sequence[Path]) -> list[str]:
    """Check labels that can be trained on; nothing for formats that people look at."""
    return ["lstr", "labels", "check", str(files[-1])] if to == "activitynet" and files else []
