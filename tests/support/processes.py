"""What tests do to processes."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For preexec_fn: a shell starts what runs in its background deaf to Ctrl-C, and so everything that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
