"""How a live source is connected: when something came of it last, and whether it is away, for whoever shows it."""

from datetime import datetime, timedelta
from time import monotonic

from lstr.errors import StalledError, VideoError
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.stretches import GAP_SECONDS
from lstr.files.names import shown

QUIET = 2.0  # seconds without a frame after which a source counts as stalled


class Link:
    """What came of a source, over its connections; times in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.sign = monotonic()
        """When a frame came last."""
        self.is_connected = False
        self.has_received = False
        """Whether anything ever came."""
        self._is_away, self._left = False, 0.0
        self._changes: list[str] = []

    def take_frame(self, now: float) -> None:
        """A frame came."""
        if self._is_away:
            self._is_away = False
            self._changes.append(f"connected again, after {now - self._left:.0f} s without a frame.")
        self.sign, self.has_received, self.is_connected = now, True, True

    def wait(self) -> None:
        """Whoever waits for a place among the chunks is not silent."""
        self.sign = monotonic()

    def leave(self) -> None:
        """Say that a source which has sent something is away, once it is for longer than a frame stands."""
        silence = monotonic() - self.sign
        if self.has_received and not self._is_away and silence > GAP_SECONDS:
            self._is_away, self._left = True, self.sign
            since = datetime.now() - timedelta(seconds=silence)
            self._changes.append(f"connection lost: nothing has come since {since:%H:%M:%S}; it is connected again.")

    def changes(self) -> list[str]:
        """What has changed since it was asked last, in sentences, each as often as it happened."""
        changes, self._changes = self._changes, []
        return changes

    def describe(self, has_chunks: bool) -> str:
        """connecting, reading, stalled or lost. has_chunks: whether any wait to be taken."""
        if not self.is_connected:
            return "lost" if self.has_received else "connecting"
        if monotonic() - self.sign > QUIET and not has_chunks:
            return "stalled"
        return "reading"


def too_short(source: Input, frames: int) -> VideoError:
    """What a source fails with that ended before anything could be decided."""
    return VideoError(
        f"{shown(source.source)} ended after {frames} frames, before the first decision.",
        "a decision takes a quarter of a second of video, after `--start`; check what writes it.",
    )


def has_ended(source: Input) -> VideoError:
    """What a source fails with that has ended, and is a recording since: it would begin with what was decided."""
    return VideoError(
        f"{shown(source.source)} has ended, and is a recording since.",
        "what is sent live at its address is decided again; `lstr detect` is for recordings.",
    )


def stalled(source: Input, timeout: float) -> StalledError:
    """What a source fails with that has sent nothing for `timeout` seconds."""
    check = "check that it is on, and its address" if source.lasting else "check what writes it"
    return StalledError(
        f"{shown(source.source)} sent no frame for {timeout:g} s.",
        f"{check}; a longer timeout (`--set timeout=SECONDS`) waits longer.",
    )


def given_up(source: Input, timeout: float, lost: VideoError | None) -> VideoError:
    """What ends a source that has been silent for too long: what kept it from its first frame, `lost`, or the silence.

    Before the first frame silence is no stall: nobody knows whether there is a camera at all.
    """
    silent = stalled(source, timeout)
    if lost is None:
        return silent
    return VideoError(str(silent), silent.hint) if isinstance(lost, StalledError) else lost
