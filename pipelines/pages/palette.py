"""The colours of pages, figures, videos and subtitles; a class has the same colour in all of them."""

from collections.abc import Iterable

from lstr.labels.label_set import actions_of

# Okabe and Ito's, and two more: apart for the common kinds of colour blindness, legible on white and on dark.
CLASSES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#dd9a00", "#56b0e6", "#9b2f6f", "#86862a")
# What was detected, where no class is meant
DETECTION = CLASSES[0]
# One value among others, as a median
EMPHASIS = CLASSES[1]
# What is labelled; also marks that carry no data of a class, as thresholds and gaps
TRUTH = "#75818f"
# Background and ambiguous chunks
NO_ACTION = "#98a2af"

# Paper, letters and lines by name: on a light and on a dark page
NEUTRALS = {
    "page": ("#f4f6f8", "#0f1319"),
    "card": ("#ffffff", "#171c24"),
    "ink": ("#18202c", "#e6ebf2"),
    "soft": ("#5a6678", "#9aa6b7"),
    "line": ("#e3e8ee", "#262e3a"),
    "well": ("#eef1f5", "#1f2630"),
    "accent": ("#0b62b8", "#6bb3f5"),
    "shade": ("#18202c14", "#e6ebf218"),
    "warn": ("#fff4dc", "#33290f"),
    "warn-ink": ("#6b4700", "#f2d48b"),
    "warn-line": ("#eccf8c", "#5c4a1c"),
    "right": ("#0b62b8", "#6bb3f5"),
    "wrong": ("#b3430a", "#ee8a4d"),
}
# Pairs of keypoints of COCO that are joined where people are drawn.
LIMBS = [(0, 5), (0, 6), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12)]
LIMBS += [(11, 13), (13, 15), (12, 14), (14, 16)]


def colour_of(place: int) -> str:
    """Return the colour of the action, series or checkpoint at a place, counted from 0; the colours repeat."""
    return CLASSES[place % len(CLASSES)]


def colours_of(labels: Iterable[str]) -> dict[str, str]:
    """Return the colour of each class, in the order of a model's classes or a label file's.

    Background and the ambiguous class are grey and take no colour from the others, so that it does not matter whether
    a list of classes names them.
    """
    classes = dict.fromkeys(labels)
    colours = {label: colour_of(place) for place, label in enumerate(actions_of(classes))}
    return {label: colours.get(label, NO_ACTION) for label in classes}


def rgb_of(colour: str) -> tuple[int, int, int]:
    """Return #rrggbb as numbers from 0 to 255."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue
