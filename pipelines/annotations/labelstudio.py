"""Read and write Label Studio's tasks with timeline labels."""

import re
from collections import Counter
from pathlib import PurePath

from lstr.errors import LabelsError
from lstr.labels.label_set import Note, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.tables import frame_rate

# The name of an uploaded file, after the prefix that Label Studio adds.
UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")


class LabelStudio(Format):
    """Tasks of Label Studio with timeline labels."""

    name, suffix = "labelstudio", ".labelstudio.json"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".json":
            return False
        task = file.json
        return isinstance(task, list) or (isinstance(task, dict) and isinstance(task.get("data"), dict))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Read tasks, except skipped ones; annotations take precedence over predictions, and the last one counts."""
        videos: dict[str, VideoLabels] = {}
        notes = []
        try:
            # (task, media, stem, name); the media is `video` as in Label Studio's template, else the first entry
            named = []
            for task in file.json if isinstance(file.json, list) else [file.json]:
                data = task["data"]
                media = data.get("video") or next((str(value) for value in data.values()), "video")
                path = PurePath(str(media))
                uploaded = UPLOADED.fullmatch(path.stem) if "upload" in path.parts else None
                named.append((task, media, path.stem, data.get("id") or (uploaded[1] if uploaded else path.stem)))
            counts = Counter(name for *_, name in named)
            for task, media, stem, name in named:
                data = task["data"]
                # uploads with equal names keep the prefix
                name = (data.get("id") or stem) if counts[name] > 1 else name
                annotations = task.get("annotations") or []
                finished = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
                if annotations and not finished:
                    notes.append(Note("skipped", f"{name!r} was skipped in Label Studio and is not read"))
                    continue
                if len(finished) > 1:
                    sentence = f"{name!r} has {len(finished)} annotations; the last one is used"
                    notes.append(Note("several annotations", sentence))
                # an exported task lists the annotators' results in order of time
                results = finished or task.get("predictions") or [{"result": []}]
                rate, segments = data.get("fps"), []
                for region in results[-1]["result"]:
                    if region.get("type") != "timelinelabels":
                        continue
                    rate = rate or frame_rate(f"The task of {name!r} counts frames", name, options)
                    for frames in region["value"]["ranges"]:
                        for label in region["value"]["timelinelabels"]:
                            times = (frames["start"] - 1) / rate, frames["end"] / rate
                            segments.append(Segment(*times, label, region.get("score")))
                videos[name] = VideoLabels(data.get("subset"), data.get("duration"), tuple(segments), media)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            sentence = f"These are not tasks of Label Studio ({error!r})."
            raise LabelsError(sentence, "export the project as JSON.") from error
        return AnnotationSet(videos, (), tuple(notes))
