"""The labels of a data set out of any file or folder of annotations, what every `--labels` takes; and in numbers."""

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.errors import ExtractorError, LabelsError
from lstr.labels.balance import actions_of
from lstr.labels.check import SEVERITIES, check
from lstr.labels.label_set import Labels, Note, VideoLabels, labels_of, read_json, read_labels
from lstr.labels.perframe import is_data_info, read_data_info
from lstr.labels.segment import Segment
from lstr.labels.video_ids import check_ids
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.footage import Rates
from lstr.pipelines.annotations.format import ConvertOptions, File
from lstr.pipelines.annotations.formats import read_annotations, readable, recognise, refuse_workbook
from lstr.pipelines.annotations.ids import plain_id
from lstr.pipelines.annotations.perframe import INFO


def read_label_file(
    path: str | Path,
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """Labels of any form: ActivityNet JSON, a published data_info.json, or whatever `lstr labels convert` reads.

    roots: where the targets of the published form may be. dataset: which of a data_info.json. lenient: leave wrong
    segments in, for `lstr.labels.check.check`. present: ids of the features or videos at hand, as which an id with a
    folder or an ending is taken; by the files that a mapping has for them, numbers of frames become seconds. clock: of
    the features, on which targets of the published form must be. Scores are left out. Raises LabelsError.
    """
    if not isinstance(path, str | Path):
        raise LabelsError(f"{path!r} is no path of a label file.", "name a label file.")
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # a FIFO would be waited for
        raise LabelsError(f"{path} is no file on a disk, such as a pipe.", "write the labels into a file first.")
    info = path / INFO if (path / INFO).is_file() else path
    content = read_json(info) if info.suffix.lower() == ".json" and info.is_file() else {}
    if is_data_info(content):
        return read_data_info(info, content, [Path(root) for root in roots], dataset, skip_missing, clock=clock)
    if dataset is not None:
        raise LabelsError(f"{path} is no data_info.json with data sets to choose from.", "leave out dataset.")
    labels = with_plain_ids(_read(path, lenient, present), present)
    check_ids(labels.videos, str(path))
    return labels


def is_label_file(path: Path) -> bool:
    """Whether a file or a folder looks like labels, by its name and beginning."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        return (path / INFO).is_file() or any(map(is_label_file, files))
    try:
        if path.suffix.lower() == ".json" and is_data_info(read_json(path)):
            return True
        return recognise(path) is not None
    except (LabelsError, ExtractorError):
        return False


def _read(path: Path, lenient: bool, present: Collection[str]) -> Labels:
    try:
        form = recognise(path) if path.is_file() else None
        if path.is_file() and form is None:
            refuse_workbook(path)
        if not path.exists() or (path.is_file() and form is None):
            return read_labels(path, lenient)
        if form and form.name == "activitynet" and "database" in File(path).json:
            return read_labels(path, lenient)  # which finds a video that is in it twice
        videos = present if isinstance(present, Mapping) else {}
        rates = Rates(lambda: videos)
        annotated = read_annotations(path, ConvertOptions(lenient=lenient, rate_of=rates, seconds_of=rates.seconds))
    except (LabelsError, ExtractorError) as error:
        raise LabelsError(str(error), _whole(error.hint, path)) from error
    return labels_from(_called_as_media(annotated, present), str(path), lenient)


def _called_as_media(annotated: AnnotationSet, present: Collection[str]) -> AnnotationSet:
    """With the ids of the videos that files name inside, where their own name is none at hand and that one is."""
    videos: dict[str, AnnotatedVideo] = {}
    taken: dict[str, str] = {}
    for name, video in annotated.videos.items():
        meant = plain_id(video.media, present) if video.media and plain_id(name, present) not in present else name
        if meant != name and meant in present and meant not in annotated.videos and meant not in videos:
            taken[name] = meant
        videos[taken.get(name, name)] = video
    if not taken:
        return annotated
    (old, new), *others = taken.items()
    more = f", and {len(others)} more so" if others else ""
    note = Note("id of the media", f"{old!r} is taken as {new!r}{more}: the video that its file names")
    return replace(annotated, videos=videos, notes=(*annotated.notes, note))


def _whole(hint: str, path: Path) -> str:
    """A hint of the conversion for commands that have no such settings: with the command that converts a file."""
    command = f"lstr labels convert {shlex.quote(str(path))} -o labels.json"
    if found := re.search(r"--from(?: (\w+))?", hint):
        form = found[1] or "FORMAT"
        forms = "" if found[1] else f", where FORMAT is {', '.join(readable())}"
        return f"convert it first: `{command} --from {form}`{forms}."
    return hint


def labels_from(annotated: AnnotationSet, where: str, lenient: bool = False) -> Labels:
    """The labels that annotations make; `where` names them in messages. Raises LabelsError."""
    videos = {
        name: VideoLabels(video.subset or "", video.duration, video.segments)
        for name, video in annotated.without_scores().videos.items()
    }
    labels = replace(labels_of(videos, annotated.classes, where, lenient), lists_classes=False)
    labels = replace(labels, notes=(*labels.notes, *annotated.notes))
    if "scores" not in annotated.held():
        return labels
    note = Note("scores", "its segments have scores, as of a detector; they are taken as labels")
    return replace(labels, notes=(*labels.notes, note))


def with_plain_ids(labels: Labels, present: Collection[str]) -> Labels:
    r"""Labels whose ids are without the endings of video files, and without folders that none at hand has.

    Of a path of Windows the part after the last `\` is the id, unless its folders are at hand too. An id stays where it
    is at hand as it is, or where two would become one.
    """
    plain = {name: plain_id(name, present) for name in labels.videos}
    meant = Counter(plain.values())
    renamed = {old: new for old, new in plain.items() if new != old and meant[new] == 1}
    if not renamed:
        return labels
    videos = {renamed.get(name, name): video for name, video in labels.videos.items()}
    (old, new), *others = renamed.items()
    more = f", and {len(others)} more so" if others else ""
    text = f"{old!r} is taken as {new!r}{more}: an id is the path in the folder without the ending"
    return replace(labels, videos=videos, notes=(*labels.notes, Note("id with ending", text)))


def describe_labels(path: Path) -> dict[str, Any]:
    """Videos by subset, durations, segments and seconds per class, and how much `lstr labels check` finds.

    Wrong segments are counted as the file has them. Raises LabelsError.
    """
    labels = read_label_file(path, lenient=True, skip_missing=True)
    found = Counter(finding.severity for finding in check(labels))
    return {
        "kind": "label file",
        **counts_of(labels),
        "subsets": dict(Counter(video.subset or "none" for video in labels.videos.values())),
        "has_subsets": labels.has_subsets,
        "durations": _durations(labels),
        "per_class": _per_class(labels),
        "findings": {f"{severity}s": found[severity] for severity in SEVERITIES},
    }


def counts_of(labels: Labels) -> dict[str, int]:
    """Videos, segments, and classes but for background and ambiguous stretches."""
    segments = sum(len(video.segments) for video in labels.videos.values())
    return {"videos": len(labels.videos), "segments": segments, "classes": len(actions_of(labels))}


def _durations(labels: Labels) -> dict[str, float | int]:
    seconds = [video.duration for video in labels.videos.values() if video.duration is not None]
    if not seconds:
        return {"stated": 0}
    return {"stated": len(seconds), "seconds": sum(seconds), "shortest": min(seconds), "longest": max(seconds)}


def _per_class(labels: Labels) -> dict[str, dict[str, float]]:
    """Segments, their seconds, and the videos that show the class."""
    found: dict[str, list[tuple[str, Segment]]] = {label: [] for label in actions_of(labels)}
    for name, video in labels.videos.items():
        for segment in video.segments:
            found.setdefault(segment.label, []).append((name, segment))
    summary = {}
    for label, own in found.items():
        seconds = round(sum(max(0.0, segment.end - segment.start) for _, segment in own), 3)
        summary[label] = {"segments": len(own), "seconds": seconds, "videos": len({name for name, _ in own})}
    return summary
