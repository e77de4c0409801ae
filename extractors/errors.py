"""Typed failures of reading videos, computing flow and loading networks."""

from lstr.errors import LstrError


def first_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


class ExtractorError(LstrError):
    """A failure of reading videos, computing flow or loading networks."""


class VideoError(ExtractorError):
    """A source that does not exist, is no video, or breaks while it is read."""

    exit_code = 3


class StalledError(VideoError):
    """A live source that sends nothing for longer than the timeout."""

    exit_code = 1


class MissingPathError(ExtractorError):
    """An input path that does not exist or is of the wrong kind."""

    exit_code = 2


class MissingCameraError(MissingPathError):
    """A camera that is not plugged in; it may be later."""


class OutputError(ExtractorError):
    """A result that cannot be written."""

    exit_code = 2


class DeviceError(ExtractorError):
    """A device for networks that this machine lacks."""

    exit_code = 2


class NetworkRuntimeError(ExtractorError):
    """A runtime for networks that is not installed, or cannot run a network."""

    exit_code = 2


class FlowError(ExtractorError):
    """No usable optical flow on this machine, or a worker that died."""


class WeightsError(ExtractorError):
    """A weights file that is missing, damaged, or made for another network."""

    exit_code = 4


class RecipeError(ExtractorError):
    """Features, networks or a checkpoint that were not made by the same recipe."""

    exit_code = 4
