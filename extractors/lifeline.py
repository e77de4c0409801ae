"""What ends a process with its parent, whatever ended that one: a kill lets nobody tidy up.

On Linux the kernel can do it (PR_SET_PDEATHSIG), but it does so as soon as the *thread* ends that started the process.
A process that is kept for longer watches its parent itself, which works on every system.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
TICK = 0.5  # seconds between two looks at the parent
GRACE = 3.0  # seconds to tidy up, where that is wished


def end_with_parent(parent: int, gently: bool = False) -> None:
    """End this process within a second of process `parent`, or now if that has ended already.

    `gently` sends this process SIGTERM first, and kills it GRACE seconds later.
    """
    threading.Thread(target=_watch, args=(parent, gently), name="lifeline", daemon=True).start()


def end_with_starting_thread(parent: int) -> None:
    """End this process at once with the thread of process `parent` that started it; on other systems watch `parent`."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    end_with_parent(parent)  # which may have ended before the kernel was told, and not every kernel listens


def _watch(parent: int, gently: bool) -> None:
    while os.getppid() == parent:
        time.sleep(TICK)
    if gently:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
