"""Convert annotations of any format to any other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

from lstr.errors import LabelsError, OutputError
from lstr.extractors.video.inputs import find_videos
from lstr.files.names import fault_of
from lstr.labels.label_set import subset_named
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, Format, format_for, format_named
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, plain_id


@dataclass
class Conversion:
    """The annotations that were converted, and the files that were written, or the text if there is no output."""

    annotated: AnnotationSet
    form: Format
    files: list[Path]
    text: str | None = None

    @property
    def lost(self) -> set[str]:
        """What the new format has no place for."""
        return self.form.lost(self.annotated)


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
    if output is not None:
        return Conversion(annotated, form, form.write(Path(output), annotated, options))
    if form.is_folder or (not form.holds_many and len(annotated.videos) != 1):
        raise LabelsError(f"{form.name} is written to files here.", "add -o DIR.")
    return Conversion(annotated, form, [], form.text(annotated, options))
