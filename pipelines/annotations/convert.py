"""Convert annotations between formats."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

from lstr.errors import LabelsError, OutputError
from lstr.extractors.video.inputs import find_videos
from lstr.files.names import fault_of
from lstr.labels.label_set import subset_named
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, Format, format_for, format_named, writable
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, plain_id


@dataclass
class Conversion:
    """The result of a conversion: annotations, their format, and the written files or, without an output, the text."""

    annotated: AnnotationSet
    form: Format
    files: list[Path]
    text: str | None = None


def convert(
    sources: Iterable[str | Path], to: str | None, output: Path | None = None, options: ConvertOptions = DEFAULTS
) -> Conversion:
    """Read all sources, apply the changes of `options`, and write the result in another format.

    Args:
        sources: Files and folders of annotations.
        to: Name of the format; None derives it from the name of `output`.
        output: The file or folder to write; None returns the text, if the format has a single text.
        options: How to read, change and write.

    Raises:
        LabelsError: A source is not valid, or the format cannot be written.
        MissingPathError: A source does not exist.
        OutputError: The output cannot be written, or is one of the sources.
    """
    form = format_for(output) if to is None else format_named(to)
    if not form.writes:
        raise LabelsError(f"Annotations cannot be written as {form.name}.", f"choose one of {', '.join(writable())}.")
    paths = [Path(source) for source in sources]
    if output and Path(output).is_file() and any(path.exists() and path.samefile(output) for path in paths):
        raise OutputError(f"{output} is a source file and would be overwritten.", "choose another name with -o.")
    place = options.video
    rates = Rates(lambda: find_videos([place])) if place else None
    annotated = AnnotationSet({})
    for path in paths:
        annotated = annotated.merged(read_annotations(path, options, rates))
    if options.as_labels:
        annotated = annotated.without_scores()
    if missing := [name for name in options.rename if name not in annotated.classes]:
        known = ", ".join(map(repr, annotated.classes)) or "none"
        raise LabelsError(f"Cannot rename the unknown class {missing[0]!r}.", f"the classes are: {known}.")
    present = {subset: subset_named(subset) for subset in (video.subset for video in annotated.videos.values())}
    if missing := [old for old in options.subsets if old not in {*present, *present.values()}]:
        sentence = f"No video has the subset {missing[0]!r}." if missing[0] else "Every video has a subset already."
        known = ", ".join(sorted({*present.values()} - {""})) or "none"
        raise LabelsError(sentence, f"the subsets are: {known}; rename one with --subset OLD=NEW.")
    subsets = {old: options.subsets.get(old, options.subsets.get(new, new)) for old, new in present.items()}
    names = {name: options.rename.get(name, name) for name in annotated.classes}
    only = next(iter(annotated.videos)) if len(annotated.videos) == 1 else ""
    meant = only or (plain_id(place.absolute().as_posix(), annotated.videos) if place else "")
    videos = {}
    for video_id, video in annotated.videos.items():
        if fault := fault_of(video_id):
            raise LabelsError(f"The video id {video_id!r} is {fault}.", "rename it, as in part_1/video_07.")
        segments = tuple(replace(s, label=names[s.label]) for s in video.segments)
        media = video.media
        if place and place.is_dir():  # an ELAN file needs the path of its video
            files = sorted(p for p in place.glob(f"{escape(video_id)}.*") if p.is_file())
            media = str(files[0] if files else place / video_id)
        elif place and video_id == meant:
            media = str(place)
        videos[video_id] = replace(video, segments=segments, subset=subsets[video.subset], media=media)
    classes = tuple(dict.fromkeys(names.values()))
    annotated = form.shift_for_players(AnnotationSet(videos, classes, annotated.notes, annotated.for_players))
    if output is not None:
        return Conversion(annotated, form, form.write(Path(output), annotated, options))
    if form.is_folder or (not form.holds_many and len(annotated.videos) != 1):
        raise LabelsError(f"{form.name} is written to files, not to standard output.", "add -o DIR.")
    return Conversion(annotated, form, [], form.text(annotated, options))
