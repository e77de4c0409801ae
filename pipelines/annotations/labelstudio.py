"""Read and write Label Studio's tasks with timeline labels."""

import re
from collections import Counter
from pathlib import PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from lstr.errors import LabelsError
from lstr.labels.label_set import Note, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format

# The name of an uploaded file, after the prefix that Label Studio adds.
UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")
# The address in a task that holds an HTML tag.
SOURCE = re.compile(r"""<\w+[^>]*?\bsrc\s*=\s*["']([^"']+)""")


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
        """Read tasks; annotations take precedence over predictions, and the last one counts.

        Timeline labels count frames, and labels of an audio track count seconds. Regions of other types, and tasks that
        were skipped or not annotated, are counted in notes.
        """
        videos: dict[str, VideoLabels] = {}
        notes: list[Note] = []
        others: Counter[str] = Counter()  # regions of other types
        try:
            # (task, media, name with the prefix of an upload, name without it)
            named = []
            for task in file.json if isinstance(file.json, list) else [file.json]:
                data = task["data"]
                # the address is `video` as in Label Studio's template, else the first text with a path or a suffix
                texts = [text for text in (data.get("video"), *data.values()) if isinstance(text, str) and text]
                media = next((t for t in texts if "/" in t or PurePosixPath(t).suffix), next(iter(texts), "video"))
                media = found[1] if (found := SOURCE.search(media)) else media  # it may be in an HTML tag
                address = urlsplit(media)
                # the address of a file in local storage has its path as the parameter `d`
                path = PurePosixPath(parse_qs(address.query).get("d", [""])[0] or unquote(address.path) or media)
                uploaded = UPLOADED.fullmatch(path.stem) if "upload" in path.parts else None
                own = str(data["id"]) if isinstance(data.get("id"), str | int) else ""
                named.append((task, media, own or path.stem, own or (uploaded[1] if uploaded else path.stem)))
            counts = Counter(name for *_, name in named)
            for task, media, full_name, name in named:
                data = task["data"]
                name = full_name if counts[name] > 1 else name  # uploads with equal names keep the prefix
                annotations = task.get("annotations") or []
                finished = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
                if annotations and not finished:
                    notes.append(Note("skipped", f"{name!r} was skipped in Label Studio and is not read"))
                    continue
                if len(finished) > 1:
                    sentence = f"{name!r} has {len(finished)} annotations; the last one is used"
                    notes.append(Note("several annotations", sentence))
                # an exported task lists the annotators' results in order of time
                results = finished or task.get("predictions")
                if not results:
                    notes.append(Note("not annotated", f"{name!r} is not annotated and is skipped"))
                    continue
                rate, segments, skipped = float(data.get("fps") or 0), [], Counter[str]()
                for region in results[-1]["result"]:
                    value, score = region.get("value"), region.get("score")
                    if region.get("type") == "labels" and {"start", "end"} <= value.keys():
                        times = float(value["start"]), float(value["end"])
                        segments += [Segment(*times, label, score) for label in value["labels"]]
                    elif region.get("type") == "timelinelabels":
                        rate = rate or file.frame_rate(options, name, f"The task of {name!r} has times in frames")
                        for frames in value["ranges"]:
                            times = (frames["start"] - 1) / rate, frames["end"] / rate
                            segments += [Segment(*times, label, score) for label in value["timelinelabels"]]
                    else:
                        skipped[str(region.get("type"))] += 1
                others += skipped
                if skipped and not segments:  # perhaps its actions are in the regions that are not read
                    notes.append(Note("not annotated", f"{name!r} has no timeline labels and is skipped"))
                    continue
                videos[name] = VideoLabels(data.get("subset"), data.get("duration"), tuple(segments), media)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            sentence = f"The file does not contain tasks of Label Studio ({error!r})."
            raise LabelsError(sentence, "export the project as JSON, not as JSON-MIN.") from error
        notes += [
            Note("other regions", f"{count} regions of the type {kind!r} are skipped") for kind, count in others.items()
        ]
        return AnnotationSet(videos, (), tuple(notes))
