"""Child processes on this machine: they are connected by a socket, and end together with their parent."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import lstr
from lstr.errors import ExtractorError, LstrError
from lstr.pipelines.failures import describe_error
from lstr.pipelines.progress import Progress

TICK = 0.5  # seconds between two checks of the parent
GRACE = 3.0  # seconds to remove temporary files
PATIENCE = 1.0  # seconds between two requests to end
REQUESTS = 3  # before a process is killed
PROGRESS_SECONDS = 0.2  # between two reports of progress by a process
# The child watches its parent before it imports anything else, which takes seconds.
PROGRAM = """
import sys
from lstr.pipelines.child_process import end_with_parent
end_with_parent(int(sys.argv.pop(1)))
from {module} import main
main()
"""


class ChildProcess:
    """A child process that runs `main` of a module with `threads` torch threads; `main` must call `serve_parent`."""

    def __init__(self, module: str, threads: int, env: Mapping[str, str] | None = None):
        ours, theirs = socket.socketpair()
        known = {**package_environment(), "OMP_NUM_THREADS": str(threads), **(env or {})}
        with theirs:
            # in a new process group, so that Ctrl-C reaches only the parent, which then ends its children
            self.process = subprocess.Popen(
                command_of(module, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=known,
                process_group=0,
            )
        self.connection = Connection(ours.detach())

    def send(self, message: object) -> None:
        """Send a picklable object."""
        with suppress(OSError):  # the process has died; the next read reports it
            self.connection.send(message)

    def describe_exit(self) -> str:
        """Wait for the end of the process; return a description of its exit for a message."""
        code = self.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def end(children: Sequence[ChildProcess]) -> None:
    """End child processes; each gets a signal first, so that it can remove its temporary files."""
    for _ in range(REQUESTS):
        for child in children:
            if not child.connection.closed:
                child.process.terminate()
        until = monotonic() + PATIENCE
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - monotonic()))
        children = [child for child in children if child.process.poll() is None]
    for child in children:
        child.process.kill()
        child.process.wait()


def serve_parent(work: Callable[[Connection], Generator[object, None, None]], hint: str) -> None:
    """Send the events of `work` to the parent process over the socket, and at the end its error.

    `hint` is for unexpected errors. The parent ends this process by SIGTERM, or by ending itself.
    """

    def report(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:  # Python drops it in a destructor; the parent sends another
            sys.__unraisablehook__(unraisable)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that temporary files are removed
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent handles a closed terminal
    sys.unraisablehook = report
    with suppress(KeyboardInterrupt, BrokenPipeError):
        connection, last = Connection(int(sys.argv[1])), 0.0
        events = work(connection)
        try:
            with closing(events):
                for event in events:
                    if isinstance(event, Progress):
                        if event.done != event.total and monotonic() - last <= PROGRESS_SECONDS:
                            continue
                        last = monotonic()
                    try:
                        connection.send(event)
                    except OSError:  # the parent is gone
                        raise KeyboardInterrupt from None
        except EOFError:  # it needs no more
            pass
        except LstrError as error:
            connection.send(error)
        except Exception as error:
            connection.send(ExtractorError(f"A worker process failed: {describe_error(error)}", hint))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process is already ending


def command_of(module: str, *words: str) -> list[str]:
    """Return the command that runs `main` of a module with these arguments, and ends when this process ends."""
    return [sys.executable, "-P", "-c", PROGRAM.format(module=module), str(os.getpid()), *words]


def package_environment() -> dict[str, str]:
    """Return an environment in which a child process imports the same copy of this package."""
    root = str(Path(lstr.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def end_with_parent(parent: int) -> None:
    """Send this process SIGTERM within a second after process `parent` has ended, and kill it GRACE seconds later."""

    def watch() -> None:
        while os.getppid() == parent:
            sleep(TICK)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    # Linux's PR_SET_PDEATHSIG is no alternative: it fires when the *thread* that started the process ends.
    threading.Thread(target=watch, name="lifeline", daemon=True).start()
