"""Options that take an amount: bytes, times and rates."""

from collections.abc import Callable

import click

from lstr.pipelines.quantities import an_hour, bytes_of, seconds_of


class Quantity(click.ParamType):
    """An amount that a function of `pipelines.quantities` parses; more than nothing where it has to be `positive`."""

    def __init__(self, name: str, parse: Callable[[str], float], positive: bool = False):
        self.name, self._parse, self._positive = name, parse, positive

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._positive and amount == 0:
            self.fail("it has to be more than nothing.", param, ctx)
        return amount


SIZE = Quantity("size", bytes_of)
"""In bytes."""
TIME = Quantity("time", seconds_of)
POSITIVE_TIME = Quantity("time", seconds_of, positive=True)
"""In seconds."""
RATE = Quantity("rate", an_hour)
"""In times an hour."""
