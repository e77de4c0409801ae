"""Labels in the published layout: classes and videos in `data_info.json`, targets in `target_perframe/ID.npy`."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.chunk import MOST as MOST_RATE
from lstr.errors import LabelsError
from lstr.files.arrays import open_array
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, VideoLabels, segments_of
from lstr.labels.segment import is_name
from lstr.labels.video_ids import check_ids

INFO = "data_info.json"
TARGETS = "target_perframe"
# Keys of the lists of videos; the published files have no validation list.
SUBSETS = {"training": "train_session_set", "validation": "val_session_set", "testing": "test_session_set"}
# Maximum difference of two rates in chunks per second that count as equal: 29.97 and 30000/1001.
SAME_RATE = 1e-3


def is_data_info(content: Any) -> bool:
    """Return whether JSON content is a published data_info: data sets by name, each with `class_names`."""
    entries = list(content.values()) if isinstance(content, dict) else []
    return bool(entries) and all(isinstance(entry, dict) and "class_names" in entry for entry in entries)


def read_data_info(
    path: Path,
    content: dict[str, Any],
    roots: Sequence[Path],
    dataset: str | None = None,
    skip_missing: bool = False,
    any_rate: bool = False,
    clock: Clock = CLOCK,
) -> Labels:
    """Return the labels of one data set of a data_info.json.

    Targets become segments that convert back to the same targets; a chunk without a class is background.

    Args:
        path: The file, for messages.
        content: Its content.
        roots: Folders to search for the targets, in addition to the `data_root` of the file.
        dataset: Name of the data set; optional if the file has only one, or if a root has the name of one.
        skip_missing: Skip videos without targets.
        any_rate: Accept targets with another rate than the clock's.
        clock: The clock of the features.

    Raises:
        LabelsError: The file or the targets are not valid.
    """
    name = _choose(path, content, roots, dataset)
    entry = content[name]
    classes = entry["class_names"]
    named = isinstance(classes, list) and all(map(is_name, classes))
    if not named or len(set(classes)) < len(classes) or classes[:1] != [BACKGROUND]:
        raise LabelsError(f"{path}, {name}: class_names is not a list of names.", f'begin it with "{BACKGROUND}".')
    ignored = entry.get("ignore_index", -1)
    if isinstance(ignored, int) and 0 <= ignored < len(classes) and classes[ignored] != AMBIGUOUS:
        raise LabelsError(
            f"{path}, {name}: ignore_index {ignored} is the class {classes[ignored]!r}.",
            f'only "{AMBIGUOUS}" can be ignored; give that class this name.',
        )
    rate, wanted = entry.get("fps", FEATURES_PER_SECOND), float(clock.rate)
    is_rate = isinstance(rate, int | float) and 0 < rate <= MOST_RATE
    if not is_rate or (abs(rate - wanted) > SAME_RATE and not any_rate):
        raise LabelsError(f"{path}, {name}: {rate} targets a second.", f"make targets of {wanted:g} a second.")
    own = clock if abs(rate - wanted) <= SAME_RATE else Clock(Fraction(rate).limit_denominator(1001))
    root = entry.get("data_root")
    near = [base / root for base in (Path(), path.parent, path.parent.parent)] if isinstance(root, str) else []
    folders = [folder / TARGETS for folder in (*roots, *near) if (folder / TARGETS).is_dir()]
    videos, missing = {}, []
    for subset, key in SUBSETS.items():
        named = entry.get(key, [])
        if not isinstance(named, list):
            raise LabelsError(f"{path}, {name}: {key} is not a list of videos.", "write a list of their ids.")
        check_ids(named, f"{path}, {name}, {key}")
        for video in named:
            found = next((file for folder in folders if (file := folder / f"{video}.npy").exists()), None)
            if found is None:
                missing.append(video)
                continue
            targets = _read(found, len(classes))
            segments = segments_of(targets, classes, own)
            videos[video] = VideoLabels(subset, own.at(len(targets)), segments, n_chunks=len(targets))
    if missing and not (skip_missing and videos):
        where = f"in {', '.join(map(str, folders))}" if folders else f"because no folder {TARGETS} exists"
        raise LabelsError(
            f"{path}, {name}: {len(missing)} videos have no targets {where}: {', '.join(missing[:3])}.",
            f"put them in {TARGETS}/ next to the features, or skip these videos with --set skip_missing=true.",
        )
    return Labels(tuple(classes), videos)


def _choose(path: Path, content: dict[str, Any], roots: Sequence[Path], dataset: str | None) -> str:
    if dataset is not None and dataset not in content:
        raise LabelsError(f"{path} has no data set {dataset!r}.", f"it has {', '.join(content)}.")
    if dataset is not None:
        return dataset
    if len(content) == 1:
        return next(iter(content))
    folders = {root.resolve().name.casefold() for root in roots}
    fitting = [
        name
        for name, entry in content.items()
        if folders & {name.casefold(), Path(str(entry.get("data_root", ""))).name.casefold()}
    ]
    if len(fitting) != 1:
        raise LabelsError(
            f"{path} has the data sets {', '.join(content)}.", f"choose: --set dataset={next(iter(content))}"
        )
    return fitting[0]


def _read(path: Path, n_classes: int) -> NDArray[Any]:
    """Read the targets (L, n_classes) of one video."""
    try:
        targets = open_array(path)
    except (OSError, ValueError, EOFError) as error:
        raise LabelsError(f"The targets {path} cannot be read ({error}).", "copy or make the file again.") from error
    if targets.ndim != 2 or targets.shape[1] != n_classes:
        raise LabelsError(
            f"The targets {path} have shape {targets.shape}, data_info names {n_classes} classes.",
            f"give an array (chunks, {n_classes}).",
        )
    return targets
