"""Options that take an amount: bytes, times and rates."""

import click

from lstr.pipelines.quantities import an_hour, bytes_of, seconds_of


class Size(click.ParamType):
    """Bytes, written as 20MB, 1.5GiB or 500000."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return bytes_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Seconds(click.ParamType):
    """A time, written as 90, 90s, 1.5m, 1:30 or 1:02:03.5; in seconds."""

    name = "time"

    def __init__(self, positive: bool = False):
        self._positive = positive

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            total = seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._positive and total == 0:
            self.fail("it has to be more than nothing.", param, ctx)
        return total


class PerHour(click.ParamType):
    """A rate above 0, written as 2/h, 5/day or 2, which is an hour's; in times an hour."""

    name = "rate"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            return an_hour(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
