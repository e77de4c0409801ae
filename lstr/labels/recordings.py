"""Which recording a clip was cut from, by its name: clips of one recording must not both train and test a model."""

from __future__ import annotations

import re

PIECE = re.compile(
    r"(?P<whole>.*[^\W_].*?)[ _.-]+"
    r"(?:(?P<part>part|pt)|clip|cut|segment|seg|scene|shot|cam|camera|view|angle)[ _.-]?\d+",
    re.IGNORECASE,
)
"""A name that ends in the number of a piece, or of one of several cameras."""

SENSOR = re.compile(r"(?P<whole>.*\d.*?)[ _.-]+(?:rgb|depth|ir|thermal)", re.IGNORECASE)
"""A name that ends in what the camera recorded, as in UR Fall Detection."""

GROUP = re.compile(r"(?P<whole>.+_g\d+)_c\d+", re.IGNORECASE)
"""UCF101 and its kin: group g of a class was cut into clips c."""

TIMES = re.compile(r"(?P<whole>.{11})_\d{6}_\d{6}")
"""Kinetics and its kin: an id of YouTube, and the seconds of the clip in it."""


def recording_of(video_id: str) -> str:
    """The recording that a clip belongs to: "seq3" of "seq3_clip2", "fall-01" of "fall-01-cam0"; else the id itself.

    In doubt it is the id itself: "seq1" and "seq2" are two recordings, and so are "kick_clip1" and "kick_clip2", whose
    name in common tells a class and no recording.
    """
    folder, slash, name = video_id.rpartition("/")
    while shorter := _shortened(name):
        name = shorter
    return f"{folder}{slash}{name}"


def _shortened(name: str) -> str:
    """A name without its last piece; empty where it has none."""
    for pattern in (GROUP, TIMES, SENSOR):
        if found := pattern.fullmatch(name):
            return found["whole"]
    found = PIECE.fullmatch(name)
    # parts are of one recording whatever it is called; clips are so where a number tells which
    if found and (found["part"] or re.search(r"\d", found["whole"])):
        return found["whole"]
    return ""
