"""Annotations from any form to any other."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

import numpy as np

from extractors.errors import MissingPathError
from extractors.video.frames import CHUNK_SECONDS
from extractors.video.inputs import LANES_SUFFIX
from lstr.timeline import DEFAULT, FORMAT, Thresholds, Timeline
from pipelines.annotations import elan, perframe, subtitles, tables
from pipelines.annotations import timeline_json as documents
from pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet, from_segments
from pipelines.features.folder import open_features
from pipelines.files.atomic import write_text

SUFFIXES = {
    "json": ".json", "jsonl": ".jsonl", "csv": ".csv", "tsv": ".tsv", "vtt": ".vtt", "srt": ".srt", "ass": ".ass",
    "eaf": ".eaf", "labelstudio": ".labelstudio.json", "activitynet": ".activitynet.json", "thumos": ".thumos.txt",
    "audacity": ".audacity.txt",
}  # fmt: skip
"""Text formats, and how the name of a file of one video ends."""
PICTURES = {"png": ".png", "svg": ".svg", "html": ".html", "mp4": LANES_SUFFIX}
"""What shows annotations and cannot be read back. The video's own name is never taken."""
SETS = ("csv", "tsv", "labelstudio", "activitynet")
"""One file holds any number of videos."""
FOLDERS = ("thumos", "perframe")
TARGETS = (*SUFFIXES, "perframe", *PICTURES)
SOURCES = (*SUFFIXES, "perframe", "npy")

_ALL = {"scores", "subsets", "durations", "classes without segments", "videos without segments"}
_FILES = {"videos without segments"}
HOLDS = {
    "json": _ALL,
    "jsonl": {"scores"} | _FILES,
    "csv": _ALL - {"classes without segments"},
    "tsv": _ALL - {"classes without segments"},
    "vtt": {"scores"} | _FILES,
    "srt": _FILES,
    "ass": {"scores", "classes without segments"} | _FILES,
    "eaf": _ALL,
    "labelstudio": _ALL - {"classes without segments"},
    "activitynet": _ALL - {"scores"},
    "thumos": {"subsets", "classes without segments"},
    "audacity": _FILES,
    "perframe": _ALL - {"scores"},
}
"""What a format has a place for, beside labels and times. With scores, ActivityNet's and THUMOS's are result files."""
RESULTS = {"activitynet": {"scores"} | _FILES, "thumos": {"scores", "classes without segments"}}


@dataclass
class Conversion:
    """What came of it: the files written or the text, and what the new form has no place for."""

    annotated: AnnotationSet
    files: list[Path] = field(default_factory=list)
    text: str | None = None
    lost: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    """Videos that the features do not have."""


def convert(
    sources: Iterable[str | Path],
    to: str,
    output: Path | None = None,
    given: str | None = None,
    change: Callable[[AnnotationSet], AnnotationSet] = lambda annotated: annotated,
    features: Path | None = None,
    name: str = "LSTR",
    fps: float | None = None,
    thresholds: Thresholds = DEFAULT,
    media: Path | None = None,
) -> Conversion:
    """Read every source, of the form `given` or what it looks like, and write it all in the form `to`.

    `change` is applied between. Without `output` the result is the text, where it is one. `features` give the number
    of chunks for `perframe`, `name` its data set; `fps` the frame rate for Label Studio; `thresholds` make segments
    of stored scores; `media` is the video, or the folder of videos, to draw on. Raises AnnotationError,
    MissingPathError, OutputError, and for `mp4` VideoError.
    """
    annotated: AnnotationSet | None = None
    for source in map(Path, sources):
        read = read_annotations(source, given, fps, thresholds)
        annotated = read if annotated is None else annotated.merged(read)
    annotated = change(annotated)
    if media:
        videos = {name: replace(video, media=_media(media, name)) for name, video in annotated.videos.items()}
        annotated = replace(annotated, videos=videos)
    for video_id in annotated.videos:
        if Path(video_id).is_absolute() or ".." in Path(video_id).parts:
            raise AnnotationError(f"The video {video_id!r} would be written outside the folder.", "rename it.")
    result = Conversion(annotated)
    if to in HOLDS:
        held = annotated.held()
        result.lost = held - (RESULTS.get(to, HOLDS[to]) if "scores" in held else HOLDS[to])
    if output is None:
        if to not in SUFFIXES or to in FOLDERS or (to not in SETS and len(annotated.videos) != 1):
            raise AnnotationError(f"{to} is written to files here.", "add -o DIR.")
        result.text = render(to, annotated, fps)
    elif to == "perframe":
        lengths = lengths_of(features) if features else None
        result.left_out = perframe.write_perframe(output, annotated, name, lengths)
        result.files = [output / perframe.INFO]
    elif to in PICTURES:
        for path, one in _one_by_one(annotated, output, PICTURES[to]):
            draw(to, path, one)
            result.files.append(path)
    else:
        for path, text in _texts(annotated, to, output, fps):
            write_text(path, text)
            result.files.append(path)
    return result


def _texts(annotated: AnnotationSet, to: str, output: Path, fps: float | None) -> Iterator[tuple[Path, str]]:
    """The files of a text format, and what is in them."""
    if to == "thumos":
        yield from ((output / name, text) for name, text in tables.to_thumos(annotated).items())
    elif to in SETS:
        yield output / f"labels{SUFFIXES[to]}" if _is_folder(output) else output, render(to, annotated, fps)
    else:
        yield from ((path, render(to, one)) for path, one in _one_by_one(annotated, output, SUFFIXES[to]))


def _one_by_one(annotated: AnnotationSet, output: Path, ending: str) -> Iterator[tuple[Path, AnnotationSet]]:
    """A file a video: in the folder `output`, or that file itself for a single video."""
    single = len(annotated.videos) == 1 and not _is_folder(output)
    for video_id, video in annotated.videos.items():
        path = output if single else output / f"{video_id}{ending}"
        yield path, AnnotationSet({video_id: video}, annotated.classes)


def render(to: str, annotated: AnnotationSet, fps: float | None = None) -> str:
    """A set as the text of a format; of one video, unless the format is among SETS."""
    video_id, video = next(iter(annotated.videos.items()), ("", AnnotatedVideo()))
    match to:
        case "json":
            return documents.to_text(documents.to_timeline(video_id, video, annotated.classes))
        case "jsonl":
            return documents.to_jsonl(video)
        case "csv":
            return tables.to_csv(annotated)
        case "tsv":
            return tables.to_tsv(annotated)
        case "vtt":
            return subtitles.to_vtt(video)
        case "srt":
            return subtitles.to_srt(video)
        case "ass":
            return subtitles.to_ass(video, annotated.classes)
        case "eaf":
            return elan.to_eaf(video, annotated.classes)
        case "labelstudio":
            return documents.to_text(documents.to_labelstudio(annotated, fps))
        case "activitynet":
            return documents.to_text(documents.to_activitynet(annotated))
        case "thumos":
            return tables.to_thumos_detections(annotated)
        case "audacity":
            return tables.to_audacity(video)
    raise ValueError(f"{to} is no text format")


def draw(to: str, path: Path, one: AnnotationSet) -> None:
    """One video's annotations as a picture, a page, or on the video itself."""
    from pipelines.reports.figure import write_figure
    from pipelines.reports.overlay import Lanes, write_overlay
    from pipelines.reports.timeline_page import write_report

    video_id, video = next(iter(one.videos.items()))
    timeline = documents.to_timeline(video_id, video, one.classes)
    source = Path(video.media) if video.media and Path(video.media).is_file() else None
    if to in ("png", "svg"):
        write_figure(path, timeline)
    elif to == "html":
        scores = np.full((timeline["chunks"], len(timeline["classes"])), np.nan)
        # what a person labelled has no score, so it is the page's truth
        detected = [s for s in timeline["segments"] if "score" in s]
        truth = [s for s in timeline["segments"] if "score" not in s] or None
        write_report(path, {**timeline, "segments": detected}, scores, video=source, truth=truth)
    elif source is None:
        raise MissingPathError(
            f"The video of {video_id!r} ({video.media or 'its file is not known'}) is not there.",
            "say where it is with --video FILE or DIR.",
        )
    else:
        events = [json.loads(line) for line in documents.to_jsonl(video).splitlines()]
        write_overlay(path, source, Lanes(tuple(timeline["classes"]), events))


def read_annotations(
    path: Path, given: str | None = None, fps: float | None = None, thresholds: Thresholds = DEFAULT
) -> AnnotationSet:
    """A file or a folder of annotations, of the form `given` or what it looks like. Raises AnnotationError."""
    if not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        if given == "perframe" or (given is None and (path / perframe.INFO).exists()):
            return perframe.read_perframe(path)
        files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        texts = [p for p in files if p.suffix == ".txt"]
        if given == "thumos" or (given is None and any(p.stem.endswith(("_val", "_test", "_train")) for p in texts)):
            return tables.from_thumos(path, {p: _text(p) for p in texts})
        forms = {p: guess(p) for p in files}
        files = [p for p in files if forms[p] and given in (None, forms[p])]
        if len(found := sorted({forms[p] for p in files})) > 1:
            raise AnnotationError(f"{path} holds {', '.join(found)}.", f"choose one: --from {found[0]}")
        annotated = AnnotationSet({})
        for file in files:
            video_id = file.relative_to(path).parent / _stem(file)
            annotated = annotated.merged(_read(file, forms[file], video_id.as_posix(), fps, thresholds))
        if not files:
            raise AnnotationError(f"{path} holds no annotations.", f"give files of {', '.join(SOURCES)}.")
        return annotated
    form = given or guess(path)
    if form is None:
        raise AnnotationError(f"What form {path} is of cannot be told.", f"say it with --from: {', '.join(SOURCES)}.")
    try:
        return _read(path, form, _stem(path), fps, thresholds)
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}", error.hint) from error


def guess(path: Path) -> str | None:
    """The form that a file's name and beginning say; None for one that is no annotation."""
    ending = path.suffix.lower().removeprefix(".")
    if path.name.endswith(".scores.npy"):
        return "npy"
    if ending == "txt":
        if path.name == tables.CLASS_LIST:
            return None
        first = next((line for line in _text(path).splitlines() if line.strip()), "")
        return "audacity" if "\t" in first else "thumos"
    if ending == "ssa":
        return "ass"
    if ending != "json":
        return ending if ending in SUFFIXES else None
    content = _json(path)
    if isinstance(content, list):
        return "labelstudio"
    if not isinstance(content, dict):
        return None
    if content.get("format") == FORMAT:
        return "json"
    if "database" in content or "results" in content:
        return "activitynet"
    return "labelstudio" if "data" in content else None


def lengths_of(features: Path) -> dict[str, int]:
    """Chunks of each video of a feature folder. Raises RecipeError or MissingPathError."""
    folder = open_features(features)
    return {video_id: len(folder.load(video_id)[0]) for video_id in folder.ids()}


def _read(path: Path, form: str, video_id: str, fps: float | None, thresholds: Thresholds) -> AnnotationSet:
    classes: Sequence[str] = ()
    match form:
        case "csv" | "tsv":
            return tables.from_csv(_text(path), video_id)
        case "labelstudio":
            return documents.from_labelstudio(_json(path), fps)
        case "activitynet":
            return documents.from_activitynet(_json(path))
        case "thumos":
            names = path.parent / tables.CLASS_LIST
            read = {p: _text(p) for p in (path, names) if p.exists()}
            return tables.from_thumos(path, read)
        case "json":
            video, classes = documents.from_timeline(_json(path))
        case "jsonl":
            video = documents.from_jsonl(_text(path))
        case "vtt":
            video = subtitles.from_vtt(_text(path))
        case "srt":
            video = subtitles.from_srt(_text(path))
        case "ass":
            video, classes = subtitles.from_ass(_text(path))
        case "eaf":
            video, classes = elan.from_eaf(_text(path))
        case "audacity":
            video = tables.from_audacity(_text(path))
        case "npy":
            video, classes = _decide(path, thresholds)
        case _:
            raise AnnotationError(f"{form} cannot be read back.", f"give one of {', '.join(SOURCES)}.")
    return AnnotationSet({video_id: video}, tuple(classes))


def _decide(path: Path, thresholds: Thresholds) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """Segments of stored scores, whose classes the timeline beside them names."""
    beside = path.with_name(path.name.removesuffix(".scores.npy") + ".json")
    if not beside.exists():
        raise AnnotationError(f"{beside.name} is not beside it, which names the classes.", "detect with -f json,npy.")
    known = _json(beside)
    try:
        scores, classes = np.load(path), tuple(known["classes"])
        if scores.ndim != 2 or scores.shape[1] != len(classes):
            raise ValueError(f"scores are {scores.shape} for {len(classes)} classes")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AnnotationError(f"The scores cannot be read ({error}).", "run `lstr detect` again.") from error
    timeline = Timeline(classes, thresholds)
    for k, row in enumerate(scores):
        timeline.push((k + 1) * CHUNK_SECONDS, row)
    timeline.finish(len(scores) * CHUNK_SECONDS)
    return from_segments(timeline.segments, duration=known["duration"], media=known["source"]), classes


def _stem(path: Path) -> str:
    """A file's name without what its form adds."""
    endings = sorted([*SUFFIXES.values(), ".scores.npy"], key=len, reverse=True)
    return next((path.name.removesuffix(e) for e in endings if path.name.endswith(e)), path.stem)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnnotationError(f"{path} is not UTF-8.", "save it again in UTF-8.") from error
    except OSError as error:
        raise AnnotationError(f"{path} cannot be read ({error.strerror}).", "check its permissions.") from error


def _json(path: Path):
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{path} is not JSON ({error}).", "save it again as JSON.") from error


def _is_folder(output: Path) -> bool:
    return output.is_dir() or not output.suffix


def _media(given: Path, video_id: str) -> str:
    """The video in a folder that has this id, or the file itself."""
    if not given.is_dir():
        return str(given)
    found = sorted(p for p in given.glob(f"{escape(video_id)}.*") if p.is_file())
    return str(found[0] if found else given / video_id)
