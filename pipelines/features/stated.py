"""What is said of features of other people, by whoever gives them or by a features.json beside them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

from lstr.chunk import MOST, STORED, Clock
from lstr.errors import ConfigError, RecipeError, brief
from lstr.files.content import read_text

BESIDE = "features.json"
PREFIX = "features."
DECIMAL = r"\d{1,9}(\.\d{1,20})?(e-\d{1,2})?"
NUMBER = re.compile(f"{DECIMAL}(/{DECIMAL})?")
# Rates of television as people write them, and as they are.
NTSC = {"23.976": "24000/1001", "23.98": "24000/1001", "29.97": "30000/1001", "59.94": "60000/1001"}
# The denominator, at most, that is taken for a number of many decimals: 29.97002997002997 is 30000/1001.
MOST_UNDER = 1001
HINT = "write the rows a second as a number, as in --set features.rate=7.5 or 30000/1001."


@dataclass(frozen=True)
class Stated:
    """What is said of a store of features; what is empty is not said."""

    rate: str = ""
    """Rows a second, such as `7.5`, `30/4` or `30000/1001`"""
    offset: str = ""
    """Seconds into the video at which the first row's chunk begins"""
    name: str = ""
    """What the features are, for people: `I3D, Kinetics`"""

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot be."""
        if self.offset and not self.rate:
            raise ConfigError("features.offset is given without features.rate.", HINT)
        self.clock  # noqa: B018 - it is checked by being read

    @property
    def clock(self) -> Clock | None:
        """When rows are; None where nobody says."""
        if not self.rate:
            return None
        rate = _fraction("rate", self.rate)
        if not 0 < rate <= MOST:
            raise ConfigError(f"features.rate is {brief(self.rate)}.", HINT)
        return Clock(rate, _fraction("offset", self.offset or "0"))

    def over(self, other: "Stated") -> "Stated":
        """This, and what another says of the rest."""
        return replace(other, **self.entries())

    def entries(self) -> dict[str, str]:
        """What is said, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}


NOTHING = Stated()


def stated_in(settings: Mapping[str, str]) -> tuple[Stated, dict[str, str]]:
    """What settings by `features.NAME` say, and the other settings. Raises ConfigError."""
    own = {name.removeprefix(PREFIX): str(text) for name, text in settings.items() if name.startswith(PREFIX)}
    return _of(own), {name: text for name, text in settings.items() if not name.startswith(PREFIX)}


def stated_beside(folder: Path, said: Stated) -> Stated:
    """What is said, and what the features.json of a folder says of the rest; of `fps` and `stride` the rate.

    Raises RecipeError.
    """
    path = folder / BESIDE
    if not path.is_file():
        return said
    try:
        values = json.loads(read_text(path))
        if not isinstance(values, dict):
            raise ValueError("it is no object")
        known = {str(name): str(value) for name, value in values.items()} | said.entries()
        fps, stride = known.pop("fps", ""), known.pop("stride", "")
        if fps and stride and "rate" not in known:
            known["rate"] = str(_storable(_fraction("fps", fps) / (_fraction("stride", stride) or 1)))
        return _of(known)
    except (OSError, ValueError, RecursionError, ConfigError) as error:
        raise RecipeError(
            f"{path} does not describe features ({error}).", 'write it as {"rate": 7.5}, or {"fps": 30, "stride": 4}.'
        ) from error


def _of(values: Mapping[str, str]) -> Stated:
    names = [field.name for field in fields(Stated)]
    for name in values:
        if name not in names:
            raise ConfigError(
                f"{PREFIX}{name} is no setting.", f"Choose one of: {', '.join(PREFIX + known for known in names)}."
            )
    return Stated(**values)


def _fraction(name: str, text: str) -> Fraction:
    text = NTSC.get(text.strip(), text.strip())
    if not NUMBER.fullmatch(text):
        raise ConfigError(f"features.{name} is {brief(text)}, no number from 0 up.", HINT)
    over, _, under = text.partition("/")
    if under and not Fraction(under):
        raise ConfigError(f"features.{name} is {brief(text)}, which divides by 0.", HINT)
    return _storable(Fraction(over) / Fraction(under or 1))


def _storable(number: Fraction) -> Fraction:
    """A number as a model can store it: the one itself, or the nearest of a small denominator."""
    return number if STORED.fullmatch(str(number)) else number.limit_denominator(MOST_UNDER)
