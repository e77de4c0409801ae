"""Several spellings of one class, which would be learnt as several classes."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator

from lstr.labels.balance import actions_of
from lstr.labels.label_set import Labels

ACCENTS = re.compile("[\u0300-\u036f]")
"""Marks that a letter of Latin, Greek or Cyrillic has above or below it; those of other scripts make other letters."""
BETWEEN = re.compile(r"[\s_-]+")


def spellings_of(labels: Labels) -> Iterator[str]:
    """A question for each class that is written in several ways, which differ in case, accents or spaces alone."""
    together = defaultdict(list)
    for name in actions_of(labels):
        together[_letters(name)].append(name)
    counts = Counter(segment.label for video in labels.videos.values() for segment in video.segments)
    for names in together.values():
        if len(names) > 1:
            most, *others = sorted(names, key=lambda name: -counts[name])
            each = ", ".join(f"{name!r} ({counts[name]})" for name in (most, *others))
            settings = " ".join(f"--set {shlex.quote(f'class.rename={name}={most}')}" for name in others)
            yield f"are these one class? {each}; if so: lstr labels convert FILE {settings} -o renamed.json"


def _letters(name: str) -> str:
    """What two spellings of a name have in common."""
    plain = ACCENTS.sub("", unicodedata.normalize("NFKD", name))
    return BETWEEN.sub("", plain).casefold() or name
