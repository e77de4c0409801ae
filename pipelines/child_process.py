"""Processes of this machine that work for this one, over a socket: started, asked to end, and their own first lines.

A process may send what it wants to tell; it ends when its parent does, and leaves nothing half-written.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from lstr.errors import ExtractorError, LstrError
from lstr.extractors.lifeline import command_of, package_environment
from lstr.pipelines.failures import described
from lstr.pipelines.progress import Progress

PATIENCE = 1.0  # seconds between two requests to end
PROGRESS_SECONDS = 0.2  # between two reports of progress by a process
REQUESTS = 3  # so many, then a process is killed


class ChildProcess:
    """A process that runs `main` of a module, which ends in `serve_parent`, with so many threads of torch."""

    def __init__(self, module: str, threads: int, env: Mapping[str, str] | None = None):
        ours, theirs = socket.socketpair()
        known = {**package_environment(), "OMP_NUM_THREADS": str(threads), **(env or {})}
        with theirs:
            # a group of its own: Ctrl-C is the parent's to hear, which then ends its children
            self.process = subprocess.Popen(
                command_of(module, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=known,
                process_group=0,
            )
        self.connection = Connection(ours.detach())

    def send(self, what: object) -> None:
        """Send it something that can be pickled."""
        with suppress(OSError):  # it is dead, which the next reading finds
            self.connection.send(what)

    def death(self) -> str:
        """How it ended, for a sentence; waits for that."""
        code = self.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def end(children: Sequence[ChildProcess]) -> None:
    """End all of them: a process that hears a request leaves nothing of what it has not finished."""
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


def tell_parent(connection: Connection, events: Generator[object, None, None], hint: str) -> None:
    """Send the events of a job as they come, and last of all what it raises; of progress not more than is looked at.

    hint: of an error that nobody raised on purpose.
    """
    last = 0.0
    try:
        with closing(events):
            for event in events:
                if isinstance(event, Progress):
                    if event.done != event.total and monotonic() - last <= PROGRESS_SECONDS:
                        continue
                    last = monotonic()
                try:
                    connection.send(event)
                except OSError:  # nobody is left who wants to know
                    raise KeyboardInterrupt from None
    except EOFError:
        return
    except LstrError as error:
        connection.send(error)
    except Exception as error:
        connection.send(ExtractorError(f"A worker process met {described(error)}", hint))


def _unraisable(unraisable: Any) -> None:
    """Tell of what Python drops, but for an interrupt that came in a destructor: the parent sends another."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


def serve_parent(serve: Callable[[Connection], None]) -> None:
    """Serve the process at the other end of the socket; it ends this one by SIGTERM, or by ending itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that nothing half-written stays
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its parent ends it
    sys.unraisablehook = _unraisable
    with suppress(KeyboardInterrupt, BrokenPipeError):
        serve(Connection(int(sys.argv[1])))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
