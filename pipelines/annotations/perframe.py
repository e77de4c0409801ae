"""Per-chunk targets as the field's repositories have them: `target_perframe/ID.npy` and `data_info.json`."""

from pathlib import Path

from lstr.errors import LabelsError
from lstr.labels.label_set import read_json
from lstr.labels.perframe import TARGETS, is_data_info, read_data_info
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Format

INFO = "data_info.json"


class PerFrame(Format):
    """A folder of targets with its data_info.json."""

    name = "perframe"
    is_folder = True

    def recognises_folder(self, folder: Path) -> bool:
        return (folder / INFO).exists()

    def read_folder(self, folder: Path, options: ConvertOptions) -> AnnotationSet:
        return read_perframe(folder)


def read_perframe(folder: Path) -> AnnotationSet:
    """The segments that a folder's targets are made of, on the grid of chunks, of the first data set of its
    data_info.json. Raises LabelsError."""
    try:
        content = read_json(folder / INFO)
        if not is_data_info(content):
            raise LabelsError(f"{folder / INFO} names no data set.", "")
        read = read_data_info(folder / INFO, content, [folder], next(iter(content)), any_rate=True)
    except LabelsError as error:
        raise LabelsError(
            f"{folder} holds no per-chunk targets: {error}", f"give a folder with {INFO} and {TARGETS}/."
        ) from error
    videos = {
        video_id: AnnotatedVideo(video.segments, video.subset, video.duration)
        for video_id, video in read.videos.items()
    }
    return AnnotationSet(videos, read.classes)
