"""What tests do to processes."""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager


def restore_signals() -> None:
    """For preexec_fn: a shell starts what runs in its background deaf to Ctrl-C, and so everything that starts.

    `nohup make test` is deaf to SIGHUP in the same way.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def limit_file_size(size: int):
    """Files of this process may have so many bytes: beyond them writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
