"""Labels of a data set, and their per-chunk targets."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.errors import LabelsError, brief
from lstr.files.content import read_text
from lstr.labels.segment import Segment, clock_seconds, find_error, is_name, is_time

BACKGROUND = "Background"
AMBIGUOUS = "Ambiguous"

# Score columns of the published THUMOS'14 model.
THUMOS_CLASSES = (
    BACKGROUND, "BaseballPitch", "BasketballDunk", "Billiards", "CleanAndJerk", "CliffDiving", "CricketBowling",
    "CricketShot", "Diving", "FrisbeeCatch", "GolfSwing", "HammerThrow", "HighJump", "JavelinThrow", "LongJump",
    "PoleVault", "Shotput", "SoccerPenalty", "TennisSwing", "ThrowDiscus", "VolleyballSpiking", AMBIGUOUS,
)  # fmt: skip

# Alternative names of the three subsets in public data sets.
SUBSET_NAMES = {"train": "training", "trn": "training", "test": "testing", "tst": "testing"}
SUBSET_NAMES |= dict.fromkeys(("val", "valid", "dev"), "validation")


@dataclass(frozen=True)
class VideoLabels:
    """The labels of one video. Segments may be invalid, as in files; `labels_of` checks them."""

    subset: str = ""  # empty if it is not stated
    duration: float | None = None  # seconds; None if it is not stated
    segments: tuple[Segment, ...] = ()
    media: str | None = None  # path or URL of the video, if a label file names it
    n_chunks: int | None = None  # number of rows of the per-chunk targets; None if the file has segments in seconds


@dataclass(frozen=True)
class Note:
    """A note, with its kind, about an entry of a label file that was interpreted instead of read literally."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Labels:
    """The labels of a data set. `classes` begins with "Background" and has the order of the score columns."""

    classes: tuple[str, ...]
    videos: dict[str, VideoLabels]
    has_subsets: bool = True  # false if the file has no subsets; then every video is in "training"
    lists_classes: bool = True
    """False if the classes were collected from the segments, so that their order has no meaning."""
    notes: tuple[Note, ...] = field(default=(), compare=False)
    """Entries that were interpreted instead of read literally; `lstr.labels.check.check` lists them."""


def actions_of(classes: Iterable[str]) -> list[str]:
    """Return the classes without "Background" and "Ambiguous"."""
    return [name for name in classes if name not in (BACKGROUND, AMBIGUOUS)]


def labels_of(
    stated: Mapping[str, VideoLabels], names: tuple[str, ...] | None, where: str, lenient: bool = False
) -> Labels:
    """Build Labels from the videos and the classes of the file `where`.

    Subset names are normalised ("train" becomes "training"); if no video has a subset, all are in "training". `lenient`
    keeps invalid segments, and "" for a missing subset. Raises LabelsError.
    """
    has_subsets = any(video.subset for video in stated.values())
    videos, renamed, n_background = {}, {}, 0
    for name, video in stated.items():
        if not video.subset and has_subsets and not lenient:
            hint = 'use "training", "validation" or "testing".'
            raise LabelsError(f"{where}, video {name!r}: the subset is missing.", hint)
        subset = subset_named(video.subset) if has_subsets else "training"
        if video.subset and subset != video.subset:
            renamed[video.subset] = subset
        segments = [replace(s, label=BACKGROUND) if _is_background(s.label) else s for s in video.segments]
        n_background += sum(segment.label == BACKGROUND for segment in segments)
        videos[name] = replace(video, subset=subset, segments=tuple(segments))
    lists_classes = names is not None
    found = {segment.label for video in videos.values() for segment in video.segments}
    names = with_ambiguous(without_ambiguous(sorted(found)) if names is None else names, found)
    notes = [Note("subset name", f"{old!r} is taken as {new!r}") for old, new in renamed.items()]
    if videos and not has_subsets:
        notes.append(Note("no subsets", 'no video has a subset: all are taken as "training"'))
    if n_background:
        notes.append(Note("background", f"segments of {BACKGROUND}: {n_background}, which count as no action"))
    classes = (BACKGROUND, *(name for name in names if not _is_background(name)))
    labels = Labels(classes, videos, has_subsets or not videos, lists_classes, tuple(notes))
    known = dict.fromkeys(classes)  # a dict for fast lookup
    for name, video in videos.items() if not lenient else ():
        for i, segment in enumerate(video.segments):
            if error := find_error(segment, known):
                raise LabelsError(f"{where}, video {name!r}, annotation {i}: {error[1]}", error[2])
    return labels


def _is_background(name: str) -> bool:
    return name.casefold() == BACKGROUND.casefold()


def read_activitynet(
    content: Any, where: str, with_results: bool = False
) -> tuple[dict[str, VideoLabels], tuple[str, ...] | None]:
    """Return the videos and the classes of ActivityNet JSON `content` from the file `where`.

    Missing subsets are "", classes are None if the file has no list of them, and segments may be invalid
    (`find_error`). With `with_results`, result files are accepted too, and scores are read. Raises LabelsError.
    """
    entries = content.get("database") if isinstance(content, dict) else None
    if with_results and isinstance(content, dict) and isinstance(content.get("results"), dict):
        entries = {name: {"annotations": found} for name, found in content["results"].items()}
    if not isinstance(entries, dict):
        hint = 'use {"classes": [...], "database": {id: {"subset", "duration", "annotations"}}}.'
        raise LabelsError(f'{where} has no object "database".', hint)
    videos = {}
    for name, entry in entries.items():
        here = f"{where}, video {name!r}"
        if not isinstance(entry, dict):
            raise LabelsError(f"{here}: the entry is not an object.", 'give it "subset", "duration" and "annotations".')
        subset, duration = entry.get("subset"), entry.get("duration")
        if subset not in (None, "") and not is_name(subset):
            raise LabelsError(f"{here}: subset is {brief(subset)}.", 'use "training", "validation" or "testing".')
        if duration is not None and not (is_time(duration) and duration >= 0):
            raise LabelsError(f"{here}: duration is {brief(duration)}.", "use the video's seconds, or omit duration.")
        annotations = entry.get("annotations", [])
        if not isinstance(annotations, list):
            raise LabelsError(f"{here}: annotations is not a list.", 'use [{"label", "segment": [start, end]}, ...].')
        segments = []
        for i, item in enumerate(annotations):
            at = f"{here}, annotation {i}"
            label = item.get("label") if isinstance(item, dict) else None
            if not is_name(label):
                wrong = f"{brief(label)} is not valid text" if isinstance(label, str) and label else "is missing"
                raise LabelsError(f"{at}: the label {wrong}.", 'write {"label": "Name", "segment": [start, end]}.')
            written, times = item.get("segment"), []
            for value in written if isinstance(written, list) else ():
                seconds = clock_seconds(value) if isinstance(value, str) else None  # of "0:01:02.5"
                times.append(value if seconds is None else seconds)
            if len(times) != 2 or not all(is_time(value) for value in times):
                hint = "use [start, end] as two finite numbers of seconds."
                raise LabelsError(f"{at}: segment is {brief(written)}.", hint)
            score, subject = item.get("score") if with_results else None, item.get("subject")
            if score is not None and not is_time(score):
                raise LabelsError(f"{at}: score is {brief(score)}.", "use a finite number, or omit score.")
            subject = subject if is_name(subject) else ""
            segments.append(Segment(float(times[0]), float(times[1]), label, score, subject))
        known = None if duration is None else float(duration)
        videos[name] = VideoLabels(subset or "", known, tuple(segments))
    names = content.get("classes")
    if names is None:
        return videos, None
    if not isinstance(names, list) or not all(map(is_name, names)):
        hint = 'write "classes": ["Background", "Name", ...].'
        raise LabelsError(f"{where}: classes is {brief(names)}, not a list of names.", hint)
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise LabelsError(f"{where}: classes contains {', '.join(twice)} more than once.", "keep each name once.")
    return videos, tuple(names)


def subset_named(name: str) -> str:
    """Return the normalised name of a subset: "training" for "train" or "Training"; other names are unchanged."""
    lower = name.strip().casefold()
    return SUBSET_NAMES.get(lower, lower if lower in SUBSET_NAMES.values() else name)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises LabelsError if it is missing, not JSON, or has duplicate names."""

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)  # Python's json module would silently drop the first of two entries with one name
        if len(content) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise LabelsError(f"The label file {path} has {twice!r} twice in one object.", "join the two entries.")
        return content

    try:
        text = read_text(path, "utf-8-sig")
    except FileNotFoundError as error:
        raise LabelsError(f"The label file {path} does not exist.", "check the path of the labels.") from error
    except (OSError, UnicodeDecodeError) as error:
        hint = "use a readable file in UTF-8, such as JSON or CSV."
        raise LabelsError(f"The label file {path} cannot be read ({error}).", hint) from error
    try:
        return json.loads(text, object_pairs_hook=build_object)
    except (ValueError, RecursionError) as error:
        hint = "convert other formats with `lstr labels convert`."
        raise LabelsError(f"The label file {path} is not JSON ({error}).", hint) from error


def select(labels: Labels, subset: str) -> Labels:
    """Return the videos of one subset, with all classes. Raises LabelsError if it is empty."""
    subset = subset_named(subset)
    videos = {name: video for name, video in labels.videos.items() if video.subset == subset}
    if not videos:
        known = sorted({video.subset for video in labels.videos.values()})
        hint = f"subsets in the labels: {', '.join(known) or 'none'}."
        raise LabelsError(f"No video is in the subset {subset!r}.", hint)
    return replace(labels, videos=videos)


def without_ambiguous(labelled: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of a model: without `AMBIGUOUS`, which marks chunks of unknown class.

    Published models of THUMOS'14 are the exception: they have an output for it.
    """
    classes = tuple(labelled)
    return classes if classes == THUMOS_CLASSES else tuple(name for name in classes if name != AMBIGUOUS)


def with_ambiguous(known: tuple[str, ...], labelled: Collection[str]) -> tuple[str, ...]:
    """Return a model's classes, with `AMBIGUOUS` last if only the labels have it; metrics skip such chunks."""
    return (*known, AMBIGUOUS) if AMBIGUOUS in labelled and AMBIGUOUS not in known else known


def targets(video: VideoLabels, classes: tuple[str, ...], n_chunks: int, clock: Clock = CLOCK) -> NDArray[np.uint8]:
    """Return multi-hot targets (n_chunks, C) of 0 and 1.

    A class is active in chunk k if floor(4 start) <= k < ceil(4 end), as in the published code. Other clocks have
    another rate instead of 4 and an offset. Background is active if no other class is; "Ambiguous" counts as a class
    here. Raises LabelsError for an unknown class.
    """
    result = np.zeros((n_chunks, len(classes)), dtype=np.uint8)
    column = {name: index for index, name in enumerate(classes)}
    for segment in video.segments:
        if segment.label not in column:
            raise LabelsError(f"The label {segment.label!r} is not among the classes.", f"known: {', '.join(classes)}.")
        if segment.label != BACKGROUND:
            first, end = clock.first(segment.start), clock.end(segment.end)
            result[max(0, first) : max(0, end), column[segment.label]] = 1
    if BACKGROUND in column:
        result[~result.any(axis=1), column[BACKGROUND]] = 1
    return result


def segments_of(targets: NDArray[Any], classes: Sequence[str], clock: Clock = CLOCK) -> tuple[Segment, ...]:
    """Return the segments of targets (L, C): the runs of each class except background, class by class.

    `targets` converts them back to the same targets.
    """
    return tuple(
        Segment(clock.at(start), clock.at(stop), label)
        for column, label in enumerate(classes)
        if label != BACKGROUND
        for start, stop in runs(np.asarray(targets)[:, column] > 0)
    )


def runs(on: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the [start, stop) of each run of True in `on` (L,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
