"""Errors a person can act on: one sentence of what is wrong, and a hint of what to type or fix next."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


class LstrError(Exception):
    """Root of all errors raised on purpose. `hint` is what to do next; `exit_code` is the command's status."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # shown below a traceback


class ConfigError(LstrError):
    """A setting that is unknown, of the wrong type, or in conflict with another."""

    exit_code = 2


class LabelsError(LstrError):
    """A label file that is missing, malformed, or contradicts itself."""

    exit_code = 2


class CheckpointError(LstrError):
    """A checkpoint that is missing, damaged, unsafe to read, or unfit for the requested model."""

    exit_code = 4


def brief(value: object) -> str:
    """What a file holds, for a message: a number of 400 digits is shown by its ends."""
    return _BRIEF.repr(value)


def few(names: Sequence[str]) -> str:
    """The first three of many names, for a sentence."""
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
