"""What tests do to processes."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For preexec_fn: a shell starts what runs in its background deaf to Ctrl-C, and so everything that starts.

    `nohup make test` is deaf to SIGHUP in the same way.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
