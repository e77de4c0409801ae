"""Annotations from any form to any other."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

from lstr.labels.video_ids import fault_of
from lstr.pipelines.annotations.annotation import AnnotationError, AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, Format
from lstr.pipelines.annotations.formats import format_for, format_named, read_annotations


@dataclass
class Conversion:
    """What came of it: the files written or the text, and what the new form has no place for."""

    annotated: AnnotationSet
    form: Format
    """What it was written in."""
    files: list[Path] = field(default_factory=list)
    text: str | None = None
    lost: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    """Videos that the features do not have."""


def convert(
    sources: Iterable[str | Path], to: str | None, output: Path | None = None, options: ConvertOptions = DEFAULTS
) -> Conversion:
    """Read every source, apply the changes of `options`, and write all of it in the format `to`.

    Where `to` is None, the ending of `output` tells it. Without `output` the result is the text, where one text holds
    it. Raises AnnotationError, MissingPathError,
    OutputError, and for `mp4` VideoError.
    """
    form = format_for(output) if to is None else format_named(to)
    annotated = AnnotationSet({})
    for source in sources:
        annotated = annotated.merged(read_annotations(Path(source), options))
    annotated = changed(annotated, options)
    for video_id in annotated.videos:
        if fault := fault_of(video_id):
            raise AnnotationError(f"The video id {video_id!r} is {fault}.", "rename it, as in part_1/video_07.")
    result = Conversion(annotated, form, lost=form.lost(annotated))
    if output is None:
        result.text = form.render(annotated, options)
    else:
        written = form.write(Path(output), annotated, options)
        result.files, result.left_out = written.files, written.left_out
    return result


def changed(annotated: AnnotationSet, options: ConvertOptions) -> AnnotationSet:
    """The annotations without scores, with other subsets and classes, or on other videos, as the options have it."""
    if options.as_labels:
        annotated = annotated.without_scores()
    annotated = annotated.with_subsets(options.subsets)
    if options.classes:
        annotated = replace(annotated, classes=options.classes)
    if folder := options.video:
        annotated = annotated.each(lambda video_id, video: replace(video, media=_media(folder, video_id)))
    return annotated


def _media(path: Path, video_id: str) -> str:
    """The video in a folder that has this id, or the file itself."""
    if not path.is_dir():
        return str(path)
    found = sorted(p for p in path.glob(f"{escape(video_id)}.*") if p.is_file())
    return str(found[0] if found else path / video_id)
