"""ELAN's annotation files, with one tier per class, because actions may overlap, and scores on a dependent tier."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lstr.errors import LabelsError, brief
from lstr.extractors.video.inputs import is_video_name
from lstr.labels.label_set import Note, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import EVERYTHING, ConvertOptions, File, Format

SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
ACTION, SCORE = "action", "score"  # names of the two tier types
PROPERTY = "lstr:"  # prefix of properties for information that does not fit into tiers
# Characters that are not allowed in XML.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Elan(Format):
    """ELAN files; reading adds a note if media were synchronised."""

    name, suffix, for_players = "eaf", ".eaf", True
    holds = EVERYTHING - {"subjects"}

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Read aligned annotations; the label is their value, or the tier's name if it is empty.

        Annotations of dependent tiers without own times are counted in a note, except the scores that lstr wrote.
        """
        try:
            root = ET.fromstring(file.text.encode())
        except ET.ParseError as error:
            raise LabelsError(f"The file is not XML ({error}).", "save it again in ELAN.") from error
        if root.tag != "ANNOTATION_DOCUMENT":
            raise LabelsError(
                f"The root element of the file is {root.tag}; this is not an ELAN file.", "use an .eaf file."
            )
        media = _media_of(root, Path(video_id).name)
        path, origin = media[0] if media else ("", 0)
        # a missing time or score is "", which is not a number
        slots = {slot.get("TIME_SLOT_ID"): slot.get("TIME_VALUE", "") for slot in root.iter("TIME_SLOT")}
        scores = {
            element.get("ANNOTATION_REF"): element.findtext("ANNOTATION_VALUE", "")
            for tier in root.findall("TIER")
            if tier.get("LINGUISTIC_TYPE_REF") == SCORE
            for element in tier.findall("ANNOTATION/REF_ANNOTATION")
        }
        segments: list[Segment] = []
        classes: dict[str, None] = {}
        skipped: dict[str, int] = {}
        for tier in root.findall("TIER"):  # ELAN does not nest tiers
            name = tier.get("TIER_ID", "")
            is_child = bool(tier.get("PARENT_REF"))
            if tier.get("LINGUISTIC_TYPE_REF") != SCORE and (below := tier.findall("ANNOTATION/REF_ANNOTATION")):
                skipped[name] = len(below)
            labels = []
            for element in tier.findall("ANNOTATION/ALIGNABLE_ANNOTATION"):
                label = (element.findtext("ANNOTATION_VALUE") or "").strip() or name
                if is_child and not all(slots.get(element.get(f"TIME_SLOT_REF{which}")) for which in "12"):
                    # a subdivision of its parent: ELAN writes no times between the first and the last part
                    skipped[name] = skipped.get(name, 0) + 1
                    continue
                try:
                    start, end = ((int(slots[element.get(f"TIME_SLOT_REF{which}")]) + origin) / 1000 for which in "12")
                    own = element.get("ANNOTATION_ID")
                    score = float(scores[own]) if own in scores else None
                except (KeyError, ValueError) as error:
                    raise LabelsError(
                        f"An annotation of the tier {name!r} has no time, or a score that is not a number.",
                        "give it a time in ELAN and save the file again.",
                    ) from error
                segments.append(Segment(start, end, label, score))
                labels.append(label)
            classes |= dict.fromkeys(labels or ([] if is_child else [name]))
        known = {element.get("NAME"): element.text for element in root.iter("PROPERTY")}
        duration = known.get(f"{PROPERTY}duration")
        subset = known.get(f"{PROPERTY}subset") or ""
        video = VideoLabels(subset, float(duration) if duration else None, tuple(segments), path or None)
        notes = [
            Note("without times", f"{count} annotations of the tier {name!r} have no own times and are skipped")
            for name, count in skipped.items()
        ]
        if other := next((one for one in media[1:] if one[1] != origin), None):
            here, there = (f"{Path(name).name!r} at {start / 1000:g} s" for name, start in (media[0], other))
            sentence = f"time 0 is in {here} and in {there}: times are relative to the first"
            notes.append(Note("several media", sentence))
        return AnnotationSet({video_id: video}, tuple(classes), tuple(notes))

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """Return the text. Tiers allow no overlaps, so overlapping segments of a class go to a tier `<class> (2)`."""
        video = annotated.first[1]
        root = ET.Element(
            "ANNOTATION_DOCUMENT",
            {
                "AUTHOR": "lstr",
                "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
                "FORMAT": "3.0",
                "VERSION": "3.0",
                "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
                "xsi:noNamespaceSchemaLocation": SCHEMA,
            },
        )
        header = ET.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
        if video.media:
            address = video.media if "://" in video.media else Path(video.media).absolute().as_uri()
            kind = guess_type(video.media)[0] or "video/*"
            ET.SubElement(header, "MEDIA_DESCRIPTOR", MEDIA_URL=_clean(address), MIME_TYPE=kind)
        for name, value in (("subset", video.subset), ("duration", video.duration)):
            if value not in ("", None):
                ET.SubElement(header, "PROPERTY", NAME=PROPERTY + name).text = str(value)
        slots = ET.SubElement(root, "TIME_ORDER")
        moments: list[tuple[int, str]] = []
        ids = count(1)
        taken: set[str] = set()

        def add(tier: ET.Element, kind: str, value: str, **attributes: str) -> None:
            element = ET.SubElement(ET.SubElement(tier, "ANNOTATION"), kind, attributes)
            ET.SubElement(element, "ANNOTATION_VALUE").text = value

        for label in annotated.classes:
            for i, layer in enumerate(_layers([s for s in video.segments if s.label == label])):
                name = _clean(label) if i == 0 else f"{_clean(label)} ({i + 1})"
                while {name, f"{name} {SCORE}"} & taken:  # "kick (2)" may also be the name of a class
                    name += "'"
                taken |= {name, f"{name} {SCORE}"}
                tier = ET.SubElement(root, "TIER", LINGUISTIC_TYPE_REF=ACTION, TIER_ID=name)
                scores = []
                for segment in layer:
                    own = f"a{next(ids)}"
                    times = {}
                    for which, seconds in (("1", segment.start), ("2", max(segment.end, segment.start + 0.001))):
                        slot = times[f"TIME_SLOT_REF{which}"] = f"ts{len(moments) + 1}"
                        moments.append((round(seconds * 1000), slot))
                    add(tier, "ALIGNABLE_ANNOTATION", _clean(label), **times, ANNOTATION_ID=own)
                    if segment.score is not None:
                        scores.append((own, segment.score))
                if scores:
                    below = {"LINGUISTIC_TYPE_REF": SCORE, "PARENT_REF": name, "TIER_ID": f"{name} {SCORE}"}
                    tier = ET.SubElement(root, "TIER", below)
                for parent, score in scores:
                    add(tier, "REF_ANNOTATION", f"{score:g}", ANNOTATION_ID=f"a{next(ids)}", ANNOTATION_REF=parent)
        for moment, slot in sorted(moments, key=lambda pair: pair[0]):
            ET.SubElement(slots, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=str(moment))
        shape = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": ACTION, "TIME_ALIGNABLE": "true"}
        ET.SubElement(root, "LINGUISTIC_TYPE", shape)
        association = "Symbolic_Association"
        shape |= {"CONSTRAINTS": association, "LINGUISTIC_TYPE_ID": SCORE, "TIME_ALIGNABLE": "false"}
        ET.SubElement(root, "LINGUISTIC_TYPE", shape)
        description = "1-1 association with a parent annotation"
        ET.SubElement(root, "CONSTRAINT", DESCRIPTION=description, STEREOTYPE=association)
        ET.indent(root)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _layers(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Split sorted segments into as few lists without overlaps as possible; at least one list."""
    layers: list[list[Segment]] = [[]]
    for segment in segments:
        free = next((x for x in layers if not x or x[-1].end <= segment.start > x[-1].start), None)
        if free is None:
            layers.append(free := [])
        free.append(segment)
    return layers


def _media_of(root: ET.Element, name: str) -> list[tuple[str, int]]:
    """Return path and time origin of each medium: the time in the file, in ms, at which the annotations' time is 0.

    Videos are first, and among them the video with this name. Raises LabelsError.
    """
    media = []
    for element in root.iter("MEDIA_DESCRIPTOR"):
        path, origin = element.get("MEDIA_URL", ""), element.get("TIME_ORIGIN") or "0"
        if path.startswith("file:"):
            path = unquote(urlsplit(path).path)
        try:
            media.append((path, int(origin)))
        except ValueError as error:
            raise LabelsError(
                f"The time origin {brief(origin)} of {brief(path)} is not a number of milliseconds.",
                "set its offset in ELAN (Options, Media Synchronization Mode) and save the file again.",
            ) from error
    return sorted(media, key=lambda one: (not is_video_name(Path(one[0])), Path(one[0]).stem != name))


def _clean(text: str) -> str:
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
