"""Read a file or a folder of annotations of any format, and convert it to any other."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

from lstr.errors import LabelsError, MissingPathError, OutputError
from lstr.extractors.video.inputs import find_videos
from lstr.files.names import fault_of
from lstr.labels.label_set import subset_named
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, FORMATS, ConvertOptions, File, Format, format_named
from lstr.pipelines.annotations.videos import Rates, plain_id
from lstr.pipelines.failures import described

# Endings of workbooks of spreadsheet programs, which are not read.
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")


def readable() -> list[str]:
    """Return the names of the formats that annotations can be read from."""
    return [form.name for form in FORMATS.usable() if form.reads]


def writable() -> list[str]:
    """Return the names of the formats that annotations can be written in."""
    return [form.name for form in FORMATS.usable() if form.writes]


def readable_suffixes() -> set[str]:
    """Return the last endings of files that annotations can be read from."""
    return {Path(f"x{form.suffix}").suffix for form in FORMATS.usable() if form.reads and form.suffix}


def format_for(output: Path | None) -> Format:
    """Return the format of a file to write by its name; `.json` is `activitynet`, which `--labels` takes.

    Raises LabelsError if the name does not tell.
    """
    name = output.name.lower() if output else ""
    forms = [form for form in FORMATS.usable() if form.writes and not form.is_folder]
    endings = {form.suffix: form for form in forms} | {f".{form.name}": form for form in forms}
    for ending in sorted(endings, key=len, reverse=True):
        if name.endswith(ending):
            return endings[ending]
    if name.endswith(".json"):
        return FORMATS["activitynet"]
    what = f"{output} does not tell the format" if output else "Without -o the format is unknown"
    raise LabelsError(f"{what}.", f"name it with --to: {', '.join(writable())}.")


def recognise(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that is one set, by its name and beginning; None if it has none.

    Raises LabelsError if a file cannot be read.
    """
    file = File(path)
    return next((form for form in FORMATS.usable() if form.recognises(file)), None)


def refuse_workbook(path: Path) -> None:
    """Raise LabelsError for a workbook of a spreadsheet program."""
    if path.suffix.lower() in WORKBOOKS:
        raise LabelsError(
            f"{path} is a workbook of a spreadsheet program, which cannot be read.",
            "save the sheet as CSV in UTF-8, with the columns video,start,end,label.",
        )


def read_annotations(path: Path, options: ConvertOptions = DEFAULTS) -> AnnotationSet:
    """Read a file or a folder of annotations, in `options.source_format` or the one that is recognised.

    Raises LabelsError and MissingPathError.
    """
    chosen = format_named(options.source_format) if options.source_format else None
    if path.is_dir():
        annotated = _read_folder(path, chosen, options)
    elif not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    elif not path.is_file():  # reading a FIFO would wait for a writer
        raise MissingPathError(f"{path} is not a file on a disk, such as a pipe.", "write it to a file first.")
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
    """Read a file or a folder in a format. Raises LabelsError, with the path, for anything that prevents it."""
    file = File(path)
    try:
        read = form.read(file, video_id, options).plausible()
        if (rate := options.frames) and not form.counts_frames:
            read = read.each_segment(lambda s: replace(s, start=s.start / rate, end=s.end / rate))
        return replace(read, notes=(*file.notes, *read.notes))
    except LabelsError as error:
        text = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        hint = error.hint.replace("convert FILE", f"convert {shlex.quote(str(path))}")
        raise LabelsError(text, hint) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise LabelsError(
            f"{path} is damaged: it is not {form.name} ({described(error)}).",
            "write it again with the tool that made it, or name its format with --from.",
        ) from error


def _read_folder(folder: Path, chosen: Format | None, options: ConvertOptions) -> AnnotationSet:
    form = chosen if chosen and chosen.is_folder else recognise(folder)
    if form and chosen in (None, form):
        return _read_as(form, folder, "", options)
    # hidden files are skipped: macOS writes one next to each file on a disk of another system
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    found = {p: known for p in files if (known := recognise(p)) and chosen in (None, known)}
    timelines = FORMATS["json"]
    if timelines in found.values():  # `lstr detect` writes the same actions in other formats next to them
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
    """Return the name of a file without what its format adds."""
    suffixes = sorted((form.suffix for form in FORMATS.usable() if form.reads and form.suffix), key=len, reverse=True)
    return next((path.name.removesuffix(s) for s in suffixes if path.name.endswith(s)), path.stem)


@dataclass
class Conversion:
    """The annotations that were converted, the files or the text, and what the new format has no place for."""

    annotated: AnnotationSet
    form: Format
    files: list[Path] = field(default_factory=list)
    text: str | None = None
    lost: set[str] = field(default_factory=set)


def convert(
    sources: Iterable[str | Path], to: str | None, output: Path | None = None, options: ConvertOptions = DEFAULTS
) -> Conversion:
    """Read every source, apply the changes of `options`, and write all of it in the format `to`.

    Without `to` the ending of `output` tells the format. Without `output` the result is a text, if one text can hold
    it. Raises LabelsError, MissingPathError, and OutputError, also if `output` is one of the sources.
    """
    form = format_for(output) if to is None else format_named(to)
    paths = [Path(source) for source in sources]
    if output and Path(output).is_file() and any(path.exists() and path.samefile(output) for path in paths):
        raise OutputError(f"{output} is a source, and would be replaced.", "choose another name with -o.")
    if place := options.video:
        rates = Rates(lambda: find_videos([place]))
        options = replace(options, rate_of=rates, seconds_of=rates.seconds)
    annotated = AnnotationSet({})
    for path in paths:
        annotated = annotated.merged(read_annotations(path, options))
    if options.as_labels:
        annotated = annotated.without_scores()
    subsets, names = options.subsets, options.rename
    annotated = annotated.each_video(  # subsets that are not renamed get the usual name: "train" is "training"
        lambda _, video: replace(video, subset=subsets.get(video.subset, video.subset and subset_named(video.subset)))
    )
    if missing := [name for name in names if name not in annotated.classes]:
        known = ", ".join(map(repr, annotated.classes)) or "none"
        raise LabelsError(f"There is no class {missing[0]!r} to rename.", f"the classes are: {known}.")
    classes = dict.fromkeys(names.get(name, name) for name in annotated.classes)
    renamed = annotated.each_segment(lambda s: replace(s, label=names.get(s.label, s.label)))
    annotated = replace(renamed, classes=tuple(classes))
    if place:  # ELAN opens the video that its file names
        videos = annotated.videos
        meant = next(iter(videos)) if len(videos) == 1 else plain_id(place.absolute().as_posix(), videos)

        def with_file(video_id: str, video: AnnotatedVideo) -> AnnotatedVideo:
            if place.is_dir():
                files = sorted(p for p in place.glob(f"{escape(video_id)}.*") if p.is_file())
                return replace(video, media=str(files[0] if files else place / video_id))
            return replace(video, media=str(place)) if video_id == meant else video

        annotated = annotated.each_video(with_file)
    for video_id in annotated.videos:
        if fault := fault_of(video_id):
            raise LabelsError(f"The video id {video_id!r} is {fault}.", "rename it, as in part_1/video_07.")
    result = Conversion(annotated, form, lost=form.lost(annotated))
    if output is None:
        result.text = form.render(annotated, options)
    else:
        result.files = form.write(Path(output), annotated, options)
    return result
