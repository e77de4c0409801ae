"""Video ids: paths relative to a folder of videos, without suffix; and the recording that a clip was cut from.

Clips of one recording must not be used for both training and testing.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import PurePath

from lstr.errors import LabelsError, brief
from lstr.files.names import fault_of

NUMBER = re.compile(r"[0-9]+")
# Number of label ids that are compared with all video ids; if all differ in the same way, these are enough.
MOST_COMPARED = 20
HINT = "Write it as the video's path in its folder, without the ending: part_1/video_07."

MATCH_HINT = "name each video by its path in the folder without the ending, or give the folder that holds the videos."


def check_ids(video_ids: Iterable[object], where: str) -> None:
    """Raise LabelsError, with the file `where`, for an id that cannot be the name of a file in a folder."""
    for video_id in video_ids:
        if fault := fault_of(video_id):
            raise LabelsError(f"{where}: the video id {brief(video_id)} is {fault}.", HINT)


def mismatch_of(labelled: Collection[str], present: Collection[str]) -> str:
    """Return a sentence if no id of the labels is among the present ids; empty if one is.

    The sentence names an id of each that may belong to the same video.
    """
    if not present or any(name in present for name in labelled):
        return ""
    if not labelled:
        return "the labels name no video"
    near = {near_id(other): other for other in present}
    for name in sorted(labelled)[:MOST_COMPARED]:
        longer = [other for other in present if name in other or PurePath(other).name in name]
        if meant := near.get(near_id(name)) or (longer[0] if len(longer) == 1 else ""):
            return f"no label belongs to any of the videos: is {brief(name)} of the labels the video {brief(meant)}?"
    ids = f"the first label is of {brief(min(labelled))}, the first of {len(present)} videos is {brief(min(present))}"
    return f"no label belongs to any of the videos: {ids}"


def check_match(labelled: Collection[str], present: Collection[str]) -> None:
    """Raise LabelsError if no id of the labels is among the present ids."""
    if sentence := mismatch_of(labelled, present):
        raise LabelsError(f"{sentence[0].upper()}{sentence[1:]}.", MATCH_HINT)


def near_id(name: str) -> str:
    """Normalise an id to find similar ids: lower case, without leading zeros of numbers."""
    return NUMBER.sub(lambda number: number[0].lstrip("0") or "0", name.casefold())


# A name that ends in the number of a part, or of one of several cameras. A point may come before the word, but not
# between word and number: it separates the fields of names such as mouse.1.cam.0, where each camera films one cage.
PIECE = re.compile(
    r"(?P<whole>.*[^\W_].*?)[ _.-]+"
    r"(?:(?P<part>part|pt)|clip|cut|segment|seg|scene|shot|cam|camera|view|angle)[ _-]?\d+",
    re.IGNORECASE,
)

# A name that ends in the type of sensor, as in UR Fall Detection.
SENSOR = re.compile(r"(?P<whole>.*\d.*?)[ _.-]+(?:rgb|depth|ir|thermal)", re.IGNORECASE)

# UCF101 and similar data sets: group g of a class was cut into clips c.
GROUP = re.compile(r"(?P<whole>.+_g\d+)_c\d+", re.IGNORECASE)

# Kinetics and similar data sets: a YouTube id, and the start and end of the clip in seconds.
TIMES = re.compile(r"(?P<whole>.{11})_\d{6}_\d{6}")


def recording_of(video_id: str) -> str:
    """Return the recording of a clip: "seq3" for "seq3_clip2", "fall-01" for "fall-01-cam0"; else the id itself.

    In doubt it is the id itself: "seq1" and "seq2" are two recordings. So are "kick_clip1" and "kick_clip2", because
    "kick" is probably a class.
    """
    folder, slash, name = video_id.rpartition("/")
    while True:
        matches = (pattern.fullmatch(name) for pattern in (GROUP, TIMES, SENSOR, PIECE))
        found = next(filter(None, matches), None)
        # parts always belong to one recording; clips only if a number identifies the recording
        if found is None or (found.re is PIECE and not found["part"] and not re.search(r"\d", found["whole"])):
            return f"{folder}{slash}{name}"
        name = found["whole"]
