"""Labels in the published layout: classes and videos in `data_info.json`, targets in `target_perframe/ID.npy`."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.chunk import MOST as MOST_RATE
from lstr.errors import LabelsError, brief
from lstr.files.arrays import open_array
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, VideoLabels, segments_of
from lstr.labels.segment import is_name
from lstr.labels.video_ids import check_ids

INFO = "data_info.json"
TARGETS = "target_perframe"
# Names of the list of classes: of LSTR and later code, and of TRN.
CLASS_KEYS = ("class_names", "class_index")
# Keys of the lists of videos; the published files have no validation list.
SUBSETS = {"training": "train_session_set", "validation": "val_session_set", "testing": "test_session_set"}
# Maximum difference of two rates in chunks per second that count as equal: 29.97 and 30000/1001.
SAME_RATE = 1e-3


def is_data_info(content: Any) -> bool:
    """Return whether JSON content is a published data_info: data sets by name, with classes or lists of videos."""
    entries = content.values() if isinstance(content, dict) else ()
    known = {*CLASS_KEYS, *SUBSETS.values()}
    return any(isinstance(entry, dict) and known & entry.keys() for entry in entries)


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
    if not isinstance(entry, dict):
        raise LabelsError(
            f"{path}, {name}: {brief(entry)} is not an object.", "write an object with class_names and lists of videos."
        )
    classes = _read_classes(f"{path}, {name}", entry)
    ignored = entry.get("ignore_index", -1)
    if isinstance(ignored, int) and 0 <= ignored < len(classes) and classes[ignored] != AMBIGUOUS:
        raise LabelsError(
            f"{path}, {name}: ignore_index {ignored} is the class {classes[ignored]!r}.",
            f'only "{AMBIGUOUS}" can be ignored; give that class this name.',
        )
    rate, wanted = entry.get("fps", FEATURES_PER_SECOND), float(clock.rate)
    if not isinstance(rate, int | float) or not 0 < rate <= MOST_RATE:
        raise LabelsError(f"{path}, {name}: fps {brief(rate)} is not a valid rate.", "write the targets per second.")
    if abs(rate - wanted) > SAME_RATE and not any_rate:
        raise LabelsError(
            f"{path}, {name}: the targets have {rate:g} rows per second, the features {wanted:g}.",
            f"make targets of {wanted:g} rows per second.",
        )
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
            if video in videos or video in missing:
                raise LabelsError(f"{path}, {name}: {video!r} is in two lists of videos.", "keep it in one of them.")
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


def _read_classes(where: str, entry: dict[str, Any]) -> list[str]:
    """Return the classes of a data set, with the first one called Background."""
    key = next((key for key in CLASS_KEYS if key in entry), None)
    if key is None:
        raise LabelsError(f"{where} has no class_names.", f'list the classes, beginning with "{BACKGROUND}".')
    classes = entry[key]
    if not isinstance(classes, list) or not classes:
        raise LabelsError(f"{where}: {key} is {brief(classes)}, not a list of classes.", "write a list of names.")
    if wrong := [value for value in classes if not is_name(value)]:
        raise LabelsError(f"{where}: {brief(wrong[0])} in {key} is not a name.", "write a text that is not empty.")
    if str(classes[0]).casefold() != BACKGROUND.casefold():
        raise LabelsError(f"{where}: {key} begins with {classes[0]!r}.", f'put "{BACKGROUND}" first.')
    classes = [BACKGROUND, *classes[1:]]
    if twice := [value for value in classes if classes.count(value) > 1]:
        raise LabelsError(f"{where}: {key} contains {twice[0]!r} twice.", "give each class a different name.")
    return classes


def _choose(path: Path, content: dict[str, Any], roots: Sequence[Path], dataset: str | None) -> str:
    if dataset is not None and dataset not in content:
        raise LabelsError(f"{path} has no data set {dataset!r}.", f"choose one of {', '.join(content)}.")
    if dataset is not None:
        return dataset
    if len(content) == 1:
        return next(iter(content))
    folders = {root.resolve().name.casefold() for root in roots}
    fitting = [
        name
        for name, entry in content.items()
        if isinstance(entry, dict)
        and folders & {name.casefold(), Path(str(entry.get("data_root", ""))).name.casefold()}
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
            f"use an array (chunks, {n_classes}).",
        )
    return targets
