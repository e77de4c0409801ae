"""What a person types for an amount: bytes, times and rates."""

import re

import click

UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class Size(click.ParamType):
    """Bytes, written as 20MB, 1.5GiB or 500000."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", value, re.IGNORECASE)
        if not parts:
            self.fail(f"{value!r} is no size; write 20MB, 1.5GB or a number of bytes.", param, ctx)
        return int(float(parts[1]) * UNITS[(parts[2] or "").lower()])


class Seconds(click.ParamType):
    """A time, written as 90, 90s, 1.5m, 1:30 or 1:02:03.5; in seconds."""

    name = "time"

    def __init__(self, positive: bool = False):
        self._positive = positive

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        clock = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d*)?)", value)
        plain = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smh]?)", value, re.IGNORECASE)
        if clock:
            hours, minutes, seconds = (float(part or 0) for part in clock.groups())
            total = 3600 * hours + 60 * minutes + seconds
        elif plain:
            total = float(plain[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[plain[2].lower()]
        else:
            self.fail(f"{value!r} is no time; write 90s, 1.5m or 1:30.", param, ctx)
        if self._positive and total == 0:
            self.fail("it has to be more than nothing.", param, ctx)
        return total


class PerHour(click.ParamType):
    """A rate above 0, written as 2/h, 5/day or 2, which is an hour's; in times an hour."""

    name = "rate"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(?:/\s*(h|hour|d|day))?\s*", value, re.IGNORECASE)
        if not parts or not float(parts[1]):
            self.fail(f"{value!r} is no rate; write 2/h, 5/day or a number above 0.", param, ctx)
        return float(parts[1]) / (24 if (parts[2] or "h").lower().startswith("d") else 1)
