"""All formats of annotations: a file or a folder of any of them is read, and converted to any other.

A new format is a class of `lstr.pipelines.annotations.format.Format` in a file of this folder, and one line in FORMATS.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

from lstr.errors import LabelsError, MissingPathError, OutputError
from lstr.extractors.video.inputs import find_videos
from lstr.files.names import fault_of
from lstr.pipelines.annotations.activitynet import ActivityNetJson
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.binary import Binary
from lstr.pipelines.annotations.boris import Boris
from lstr.pipelines.annotations.boris_tables import BorisEvents
from lstr.pipelines.annotations.elan import Elan
from lstr.pipelines.annotations.footage import Rates
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, File, Format
from lstr.pipelines.annotations.ids import plain_id
from lstr.pipelines.annotations.labelstudio import LabelStudio
from lstr.pipelines.annotations.perframe import PerFrame
from lstr.pipelines.annotations.pictures import Mp4, Page, Png, Scores, Svg
from lstr.pipelines.annotations.subtitles import Srt, Vtt
from lstr.pipelines.annotations.tables import Csv, Tsv
from lstr.pipelines.annotations.thumos import Thumos
from lstr.pipelines.annotations.timeline_json import EventLines, TimelineJson
from lstr.pipelines.failures import described

# By name. The first that recognises a file or a folder reads it.
FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        TimelineJson(),
        EventLines(),
        Boris(),
        BorisEvents(),
        Binary(),
        Csv(),
        Tsv(),
        Vtt(),
        Srt(),
        Elan(),
        LabelStudio(),
        ActivityNetJson(),
        PerFrame(),
        Thumos(),
        Scores(),
        Png(),
        Svg(),
        Page(),
        Mp4(),
    )
}

# Endings of workbooks of spreadsheet programs, which are not read.
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")


def readable() -> list[str]:
    """Names of the formats that annotations can be read from."""
    return [name for name, form in FORMATS.items() if form.reads]


def writable() -> list[str]:
    """Names of the formats that annotations can be written in."""
    return [name for name, form in FORMATS.items() if form.writes]


def format_named(name: str) -> Format:
    """The format of a name. Raises LabelsError where none has it."""
    if name not in FORMATS:
        raise LabelsError(f"{name!r} is no format.", f"choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def format_for(output: Path | None) -> Format:
    """The format that the name of a file to write means; `.json` is `activitynet`, which `--labels` takes.

    Raises LabelsError where the name does not tell.
    """
    name = output.name.lower() if output else ""
    forms = [form for form in FORMATS.values() if form.writes and not form.is_folder]
    endings = {form.suffix: form for form in forms} | {f".{form.name}": form for form in forms}
    for ending in sorted(endings, key=len, reverse=True):
        if name.endswith(ending):
            return endings[ending]
    if name.endswith(".json"):
        return FORMATS["activitynet"]
    what = f"{output} does not tell the format" if output else "Without -o the format is unknown"
    raise LabelsError(f"{what}.", f"name it with --to: {', '.join(writable())}.")


def recognise(path: Path) -> Format | None:
    """The format that a file has by its name and beginning; None for one that holds no annotations.

    Raises LabelsError where a file cannot be read.
    """
    file = File(path)
    return next((form for form in FORMATS.values() if form.recognises(file)), None)


def readable_suffixes() -> set[str]:
    """The last endings of files that annotations can be read from."""
    return {Path(f"x{form.suffix}").suffix for form in FORMATS.values() if form.reads and form.suffix}


def refuse_workbook(path: Path) -> None:
    """Raise LabelsError for a workbook of a spreadsheet program."""
    if path.suffix.lower() in WORKBOOKS:
        raise LabelsError(
            f"{path} is a workbook of a spreadsheet program, which cannot be read.",
            "save the sheet as CSV in UTF-8, with the columns video,start,end,label.",
        )


def files_below(folder: Path) -> list[Path]:
    """The files below a folder, sorted, but for hidden ones, as macOS puts beside each."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


def read_annotations(path: Path, options: ConvertOptions = DEFAULTS) -> AnnotationSet:
    """A file or a folder of annotations, of `options.source_format` or what it is recognised as.

    Raises LabelsError and MissingPathError.
    """
    chosen = format_named(options.source_format) if options.source_format else None
    if path.is_dir():
        annotated = _read_folder(path, chosen, options)
    elif not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    elif not path.is_file():  # a FIFO would be waited for
        raise MissingPathError(f"{path} is no file on a disk, such as a pipe.", "write it into a file first.")
    elif form := chosen or recognise(path):
        annotated = _read_as(form, path, _stem(path), options)
    else:
        refuse_workbook(path)
        hint = f"name it with --from: {', '.join(readable())}."
        raise LabelsError(f"The format of {path} cannot be recognised.", hint)
    try:
        return annotated if options.lenient else annotated.checked()
    except LabelsError as error:
        raise LabelsError(f"{path}: {error}", error.hint) from error


def _read_as(form: Format, path: Path, video_id: str, options: ConvertOptions) -> AnnotationSet:
    """What a file or a folder of a format holds. Raises LabelsError, naming it, for whatever keeps it from that."""
    try:
        read = form.read_folder(path, options) if path.is_dir() else form.read(File(path), video_id, options)
        read = read.plausible()
        return read.in_seconds(options.frames) if options.frames and not form.counts_frames else read
    except LabelsError as error:
        text = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        hint = error.hint.replace("convert FILE", f"convert {shlex.quote(str(path))}")
        raise LabelsError(text, hint) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise LabelsError(
            f"{path} is damaged: what it holds is not {form.name} ({described(error)}).",
            "write it again with the tool that made it, or name its format with --from.",
        ) from error


def _read_folder(folder: Path, chosen: Format | None, options: ConvertOptions) -> AnnotationSet:
    for form in FORMATS.values():
        if form.is_folder and (form is chosen or (chosen is None and form.recognises_folder(folder))):
            return _read_as(form, folder, "", options)
    files = files_below(folder)
    found = {p: known for p in files if (known := recognise(p)) and chosen in (None, known)}
    timelines = FORMATS["json"]
    if timelines in found.values():  # beside them `lstr detect` writes the same in other formats
        found = {path: form for path, form in found.items() if form is timelines}
    names = sorted({form.name for form in found.values()})
    if len(names) > 1:
        raise LabelsError(f"{folder} holds {', '.join(names)}.", f"choose one: --from {names[0]}")
    if not found:
        for path in files:
            refuse_workbook(path)
        raise LabelsError(f"{folder} holds no annotations.", f"give files of {', '.join(readable())}.")
    annotated = AnnotationSet({})
    for path, form in found.items():
        video_id = path.relative_to(folder).parent / _stem(path)
        annotated = annotated.merged(_read_as(form, path, video_id.as_posix(), options))
    return annotated


def _stem(path: Path) -> str:
    """A file's name without what its format adds."""
    suffixes = sorted((form.suffix for form in FORMATS.values() if form.reads and form.suffix), key=len, reverse=True)
    return next((path.name.removesuffix(s) for s in suffixes if path.name.endswith(s)), path.stem)


@dataclass
class Conversion:
    """What came of it: the files written or the text, and what the new form has no place for."""

    annotated: AnnotationSet
    form: Format
    """What it was written in."""
    files: list[Path] = field(default_factory=list)
    text: str | None = None
    lost: set[str] = field(default_factory=set)


def convert(
    sources: Iterable[str | Path], to: str | None, output: Path | None = None, options: ConvertOptions = DEFAULTS
) -> Conversion:
    """Read every source, apply the changes of `options`, and write all of it in the format `to`.

    Where `to` is None, the ending of `output` tells it. Without `output` the result is the text, where one text holds
    it. Raises LabelsError, MissingPathError, OutputError (also where `output` is one of the sources), and for `mp4`
    VideoError.
    """
    form = format_for(output) if to is None else format_named(to)
    paths = [Path(source) for source in sources]
    if output and Path(output).is_file() and any(path.exists() and path.samefile(output) for path in paths):
        raise OutputError(f"{output} is read, and would be replaced.", "choose another name with -o.")
    if videos := options.video:
        rates = Rates(lambda: find_videos([videos]))
        options = replace(options, rate_of=rates, seconds_of=rates.seconds)
    annotated = AnnotationSet({})
    for path in paths:
        annotated = annotated.merged(read_annotations(path, options))
    if options.as_labels:
        annotated = annotated.without_scores()
    annotated = annotated.with_subsets(options.subsets).renamed(options.rename)
    if options.classes:
        annotated = replace(annotated, classes=options.classes)
    if options.video:
        annotated = _with_media(annotated, options.video, form)
    for video_id in annotated.videos:
        if fault := fault_of(video_id):
            raise LabelsError(f"The video id {video_id!r} is {fault}.", "rename it, as in part_1/video_07.")
    result = Conversion(annotated, form, lost=form.lost(annotated))
    if output is None:
        result.text = form.render(annotated, options)
    else:
        result.files = form.write(Path(output), annotated, options)
    return result


def _with_media(annotated: AnnotationSet, place: Path, form: Format) -> AnnotationSet:
    """With the files of the videos: those in a folder, or a file for the only video or the one that it is called as.

    Raises LabelsError where a file is to be shown with annotations of others.
    """
    if place.is_dir():
        return annotated.each(lambda video_id, video: replace(video, media=_media(place, video_id)))
    videos = annotated.videos
    meant = next(iter(videos)) if len(videos) == 1 else plain_id(place.absolute().as_posix(), videos)
    if meant not in videos and videos and not form.reads:
        raise LabelsError(
            f"{place} is none of the {len(videos)} videos, of which the first is {min(videos)!r}.",
            "name the folder that holds them: --video DIR.",
        )
    return annotated.each(lambda name, video: replace(video, media=str(place)) if name == meant else video)


def _media(folder: Path, video_id: str) -> str:
    """The video in a folder that has this id."""
    found = sorted(p for p in folder.glob(f"{escape(video_id)}.*") if p.is_file())
    return str(found[0] if found else folder / video_id)
