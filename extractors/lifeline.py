"""Processes that this package starts: how they find it, and how they end with their parent, also if that is killed.

A process watches its parent itself, which works on every system. The kernel of Linux could do it (PR_SET_PDEATHSIG),
but does so as soon as the *thread* ends that started the process.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import lstr.extractors

TICK = 0.5  # seconds between two looks at the parent
GRACE = 3.0  # seconds to tidy up
# it watches its parent before the seconds that other imports take
PROGRAM = """
import sys
from lstr.extractors.lifeline import end_with_parent
end_with_parent(int(sys.argv.pop(1)))
from {module} import main
main()
"""


def command_of(module: str, *words: str) -> list[str]:
    """Return the command that runs `main` of a module with these arguments, and ends gently with this process."""
    return [sys.executable, "-P", "-c", PROGRAM.format(module=module), str(os.getpid()), *words]


def package_environment() -> dict[str, str]:
    """Return the environment of a process that imports this very package, wherever it was started from."""
    root = str(Path(lstr.extractors.__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def end_with_parent(parent: int) -> None:
    """Send this process SIGTERM within a second of the end of process `parent`, and kill it GRACE seconds later."""
    threading.Thread(target=_watch, args=(parent,), name="lifeline", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(TICK)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
