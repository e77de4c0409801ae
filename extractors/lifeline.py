"""Processes that this package starts: how they find it, and how they end with their parent, also if that is killed.

A process watches its parent itself, which works on every system. The kernel of Linux could do it (PR_SET_PDEATHSIG),
but does so as soon as the *thread* ends that started the process.
"""

import os
import signal
import threading
import time
from pathlib import Path

import lstr.extractors

TICK = 0.5  # seconds between two looks at the parent
GRACE = 3.0  # seconds to tidy up, where that is wished


def package_environment() -> dict[str, str]:
    """Return the environment of a process that imports this very package, wherever it was started from."""
    root = str(Path(lstr.extractors.__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def end_with_parent(parent: int, gently: bool = False) -> None:
    """End this process within a second of process `parent`, or now if that has ended already.

    `gently` sends this process SIGTERM first, and kills it GRACE seconds later.
    """
    threading.Thread(target=_watch, args=(parent, gently), name="lifeline", daemon=True).start()


def _watch(parent: int, gently: bool) -> None:
    while os.getppid() == parent:
        time.sleep(TICK)
    if gently:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
