"""All errors that this package raises: a sentence that describes the error, and a hint for the user."""

import json
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


class LstrError(Exception):
    """Base of all errors of this package. `hint` tells the user what to do; `exit_code` is the command's status."""

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.add_note(f"hint: {hint}")  # shown below a traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.hint), self.__dict__  # pickle would pass `args` only, without the hint


class ConfigError(LstrError):
    """An unknown setting, a setting of the wrong type, or settings that conflict."""

    exit_code = 2


class TooShortError(ConfigError):
    """A maximum training time that is too short for the labelled videos."""


class LabelsError(LstrError):
    """A label file that is missing, malformed, contradictory, or not convertible to another format."""

    exit_code = 2


class CheckpointError(LstrError):
    """A checkpoint that is missing, damaged, unsafe to read, or for another model."""

    exit_code = 4


class SeenError(LstrError):
    """Videos to score that were used to train the networks of their features."""

    exit_code = 4


class ServingError(LstrError):
    """An address on which a page cannot be served."""

    exit_code = 2


class RequestError(LstrError):
    """An invalid request from a page."""

    exit_code = 2


class ConflictError(LstrError):
    """A change of a value that another browser tab has changed in the meantime."""

    exit_code = 2


class HistoryError(LstrError):
    """A history of events that cannot be read or written."""

    exit_code = 2


class DeliveryError(Exception):
    """A notification that could not be delivered and will be retried; the message contains no address and no secret."""


class ExtractorError(LstrError):
    """A failure of reading videos, computing flow or running networks."""


class VideoError(ExtractorError):
    """A source that does not exist, is not a video, or fails while it is read."""

    exit_code = 3


class StalledError(VideoError):
    """A live source that sends nothing for longer than the timeout."""

    exit_code = 1


class MissingPathError(ExtractorError):
    """An input path that does not exist or is of the wrong kind."""

    exit_code = 2


class MissingCameraError(MissingPathError):
    """A camera that is not plugged in, but may be later."""


class OutputError(ExtractorError):
    """An output that cannot be written."""

    exit_code = 2


class CacheError(ExtractorError):
    """A cached chunk that is damaged."""


class DeviceError(ExtractorError):
    """A device or a cluster that is not available."""

    exit_code = 2


class NetworkRuntimeError(ExtractorError):
    """A runtime for networks that is not installed, or cannot run a network."""

    exit_code = 2


class FlowError(ExtractorError):
    """Optical flow that this machine cannot compute, or a flow worker that died."""

    def __init__(
        self, message: str, hint: str = "set LSTR_FLOW_BACKEND=native, to compute the same flow on the CPU."
    ) -> None:
        super().__init__(message, hint)


class WeightsError(ExtractorError):
    """A weights file that is missing, damaged, or for another network."""

    exit_code = 4


class UnfitError(WeightsError):
    """Intact weights of another network or stream."""


class RecipeError(ExtractorError):
    """A mismatch between the recipes of features, networks or a checkpoint."""

    exit_code = 4


class ExhaustedError(ExtractorError):
    """Insufficient memory or a lost GPU; the run ends, because the next source would fail too."""


class UnforeseenError(ExtractorError):
    """An unexpected error for the only source of a run."""

    exit_code = 3


def brief(value: object) -> str:
    """Return a short text of a value for a message; long numbers and strings are abbreviated."""
    return _BRIEF.repr(value)


def few(names: Sequence[str]) -> str:
    """Return the first three of many names, for a sentence."""
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def install_hint(extra: str) -> str:
    """Return the pip command that adds an extra to lstr, from where it was installed."""
    from importlib.metadata import distribution

    clone = Path(__file__).parents[1]
    if (clone / "setup.cfg").is_file():  # without -e pip would install a copy, which no `git pull` changes
        return f"pip install -e '{clone}[{extra}]'"
    origin = json.loads(distribution("lstr-video").read_text("direct_url.json") or "{}")  # written by pip, PEP 610
    address = origin.get("url", "")
    if source := origin.get("vcs_info"):
        address = f"{source['vcs']}+{address}@{source['commit_id']}"
    return f"pip install 'lstr-video[{extra}]{address and f' @ {address}'}'"
