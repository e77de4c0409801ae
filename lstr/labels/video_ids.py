"""Video ids: paths without an ending, relative to a folder of videos or of features, and never out of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from lstr.errors import LabelsError, brief

LONGEST = 255  # bytes of a file name
HINT = "Write it as the video's path in its folder, without the ending: part_1/video_07."

MATCH_HINT = "name each video by its path in the folder without the ending, or give the folder that holds the videos."


def fault_of(video_id: object) -> str:
    """Why a video id names no file inside a folder, to follow "is"; empty where it does."""
    if not isinstance(video_id, str) or not video_id.strip("/."):
        return "no name of a video"
    parts = video_id.split("/")
    if not parts[0] or ".." in parts:
        return "a path that leads out of its folder"
    try:
        encoded = [os.fsencode(part) for part in parts]
    except UnicodeEncodeError:
        encoded = []
    if "\0" in video_id or not encoded:
        return "no name that a file can have"
    return "longer than a file name can be" if max(map(len, encoded)) > LONGEST else ""


def check_ids(video_ids: Iterable[object], where: str) -> None:
    """Raise LabelsError, with the file `where` and the id, for one that names no file inside a folder."""
    for video_id in video_ids:
        if fault := fault_of(video_id):
            raise LabelsError(f"{where}: the video id {brief(video_id)} is {fault}.", HINT)


def mismatch_of(labelled: Collection[str], present: Collection[str]) -> str:
    """What keeps every id of labels from being one of the ids at hand, with the first of both; empty where one is."""
    if not present or any(name in present for name in labelled):
        return ""
    if not labelled:
        return "the labels name no video"
    ids = f"the first label is of {brief(min(labelled))}, the first of {len(present)} at hand is {brief(min(present))}"
    return f"no label belongs to any of the videos: {ids}"


def check_match(labelled: Collection[str], present: Collection[str]) -> None:
    """Raise LabelsError where no id of labels is one of the ids at hand."""
    if sentence := mismatch_of(labelled, present):
        raise LabelsError(f"{sentence[0].upper()}{sentence[1:]}.", MATCH_HINT)
