"""Labels in the published layout: classes and videos in `data_info.json`, targets in `target_perframe/ID.npy`."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.chunk import MOST as MOST_RATE
from lstr.errors import LabelsError, brief
from lstr.files.arrays import open_array
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, VideoLabels, segments_of
from lstr.labels.segment import is_name
from lstr.labels.video_ids import check_ids

INFO = "data_info.json"
TARGETS = "target_perframe"
CLASS_KEYS = ("class_names", "class_index")  # names of the list of classes: of LSTR and later code, and of TRN
# Keys of the lists of videos; the published files have no validation list.
SUBSETS = {"training": "train_session_set", "validation": "val_session_set", "testing": "test_session_set"}
SAME_RATE = 1e-3  # maximum difference of two rates in chunks per second that count as equal: 29.97 and 30000/1001


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
    name, entry, classes = _choose(path, content, roots, dataset)
    where = f"{path}, {name}"
    rate, wanted = entry.get("fps", FEATURES_PER_SECOND), float(clock.rate)
    if not isinstance(rate, int | float) or not 0 < rate <= MOST_RATE:
        raise LabelsError(f"{where}: fps {brief(rate)} is not a valid rate.", "write the targets per second.")
    is_same = abs(rate - wanted) <= SAME_RATE
    if not is_same and not any_rate:
        sentence = f"{where}: the targets have {rate:g} rows per second, the features {wanted:g}."
        raise LabelsError(sentence, f"make targets of {wanted:g} rows per second.")
    own = clock if is_same else Clock(Fraction(rate).limit_denominator(1001))
    root = entry.get("data_root")
    near = [base / root for base in (Path(), path.parent, path.parent.parent)] if isinstance(root, str) else []
    folders = [folder / TARGETS for folder in (*roots, *near) if (folder / TARGETS).is_dir()]
    videos, missing = {}, []
    for subset, key in SUBSETS.items():
        named = entry.get(key, [])
        if not isinstance(named, list):
            raise LabelsError(f"{where}: {key} is not a list of videos.", "write a list of their ids.")
        check_ids(named, f"{where}, {key}")
        for video in named:
            if video in videos or video in missing:
                raise LabelsError(f"{where}: {video!r} is in two lists of videos.", "keep it in one of them.")
            found = next((file for folder in folders if (file := folder / f"{video}.npy").exists()), None)
            if found is None:
                missing.append(video)
                continue
            try:
                targets = open_array(found)
            except (OSError, ValueError, EOFError) as error:
                hint = "copy or make the file again."
                raise LabelsError(f"The targets {found} cannot be read ({error}).", hint) from error
            if targets.ndim != 2 or targets.shape[1] != len(classes):
                sentence = f"The targets {found} have shape {targets.shape}, data_info names {len(classes)} classes."
                raise LabelsError(sentence, f"use an array (chunks, {len(classes)}).")
            segments = segments_of(targets, classes, own)
            videos[video] = VideoLabels(subset, own.at(len(targets)), segments, n_chunks=len(targets))
    if missing and not (skip_missing and videos):
        place = f"in {', '.join(map(str, folders))}" if folders else f"because no folder {TARGETS} exists"
        raise LabelsError(
            f"{where}: {len(missing)} videos have no targets {place}: {', '.join(missing[:3])}.",
            f"put them in {TARGETS}/ next to the features, or skip these videos with --set skip_missing=true.",
        )
    return Labels(tuple(classes), videos)


def _choose(
    path: Path, content: dict[str, Any], roots: Sequence[Path], dataset: str | None
) -> tuple[str, dict[str, Any], list[str]]:
    """Return the name of the data set to read, its entry, and its classes, with the first one called Background."""
    folders = {root.resolve().name.casefold() for root in roots}
    fitting = list(content)
    if dataset is not None:
        fitting = [name for name in content if name == dataset]
    elif len(content) > 1:
        roots_of = {name: Path(str(e.get("data_root", ""))).name for name, e in content.items() if isinstance(e, dict)}
        fitting = [name for name, root in roots_of.items() if folders & {name.casefold(), root.casefold()}]
    if dataset is not None and not fitting:
        raise LabelsError(f"{path} has no data set {dataset!r}.", f"choose one of {', '.join(content)}.")
    if len(fitting) != 1:
        hint = f"choose: --set dataset={next(iter(content))}"
        raise LabelsError(f"{path} has the data sets {', '.join(content)}.", hint)
    where, entry = f"{path}, {fitting[0]}", content[fitting[0]]
    if not isinstance(entry, dict):
        hint = "write an object with class_names and lists of videos."
        raise LabelsError(f"{where}: {brief(entry)} is not an object.", hint)
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
    ignored = entry.get("ignore_index", -1)
    if isinstance(ignored, int) and 0 <= ignored < len(classes) and classes[ignored] != AMBIGUOUS:
        sentence = f"{where}: ignore_index {ignored} is the class {classes[ignored]!r}."
        raise LabelsError(sentence, f'only "{AMBIGUOUS}" can be ignored; give that class this name.')
    return fitting[0], entry, classes
