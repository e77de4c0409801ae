"""Videos over processes of this machine, each with its share of the cores and one of the GPUs.

`main` is such a process, which its parent talks to over a socket: it takes a WorkerConfig, then (id, source) of one
video after the other, and sends WorkerReady, Progress, an Outcome per video, or last of all an error.
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

import lstr.pipelines
from lstr.extractors.errors import ExtractorError
from lstr.extractors.flow.workers import default_workers
from lstr.pipelines.extraction.options import WorkerConfig
from lstr.pipelines.extraction.resume import Outcome, failed
from lstr.pipelines.extraction.video import open_worker
from lstr.pipelines.failures import Failure, described
from lstr.pipelines.files.atomic import sweep
from lstr.pipelines.files.remote import Place
from lstr.pipelines.progress import Progress

STARTS = 3  # processes that may die in a row while they start, before the machine is taken to be at fault
PATIENCE = 1.0  # seconds between two requests to end
REQUESTS = 3  # so many, then a process is killed
# it heeds its parent before the seconds that other imports take
PROCESS = f"""
import sys
from lstr.extractors.lifeline import end_with_parent
end_with_parent(int(sys.argv[2]), gently=True)
from {__name__} import main
main()
"""
PROGRESS_SECONDS = 0.2  # between two reports of progress by a process


@dataclass(frozen=True)
class WorkerReady:
    """A worker process has its networks."""


class WorkerProcess:
    """A process that extracts one video after the other, begun with the first; `at` is the one it is at.

    `gpu` counts those that CUDA_VISIBLE_DEVICES names; None leaves the choice to the process.
    """

    def __init__(self, config: WorkerConfig, gpu: int | None, first: tuple[str, Place]):
        ours, theirs = socket.socketpair()
        root = str(Path(lstr.pipelines.__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(config.threads or default_workers())}
        if gpu is not None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            env["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
        with theirs:
            # a group of its own: Ctrl-C is the parent's to hear, which then ends its workers
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROCESS, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=env,
                process_group=0,
            )
        self.gpu = gpu
        self.connection = Connection(ours.detach())
        self.ready = False
        self._send(config)
        self.give(first)

    def give(self, video: tuple[str, Place]) -> None:
        """Send it its next video, (id, source)."""
        self.at = video
        self._send(video)

    def _send(self, what: object) -> None:
        with suppress(OSError):  # it is dead, which the next reading finds
            self.connection.send(what)


def over_processes(
    to_do: Mapping[str, Place], config: WorkerConfig, processes: int, gpus: int = 0
) -> Generator[Progress | Outcome, None, None]:
    """An engine of `lstr.pipelines.extraction.resume`: at most so many processes, shared out evenly over `gpus`.

    A process that dies is replaced, and its video tried a second time after the others. Close the generator to end
    all of them. Raises what a worker raises, and ExtractorError when they die while they start.
    """
    waiting = deque(to_do.items())
    workers: list[WorkerProcess] = []
    released: list[WorkerProcess] = []
    suspects: set[str] = set()
    lost, died = 0, False
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                workers.append(WorkerProcess(config, _least_used(gpus, workers), waiting.popleft()))
            readable = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in readable]:
                try:
                    event = worker.connection.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.connection.close()
                    how = _death(worker.process.wait())
                    lost, died = 0 if worker.ready else lost + 1, True
                    if lost == STARTS:
                        raise ExtractorError(
                            f"{STARTS} worker processes in a row ended while they started ({how}).",
                            "is memory short? use fewer [[workers]]; with 1 no other process is started.",
                        ) from None
                    video_id, source = worker.at
                    if video_id in suspects:
                        reason = f"{source} ended the process that extracted it, twice ({how})."
                        hint = "is memory short? try it alone, with [[workers=1]]."
                        yield failed(video_id, source, Failure(reason, hint))
                    else:
                        waiting.append(worker.at)
                    if worker.ready:
                        suspects.add(video_id)
                    continue
                if isinstance(event, ExtractorError):
                    raise event
                if isinstance(event, WorkerReady):
                    worker.ready, lost = True, 0
                    continue
                if isinstance(event, Outcome):
                    if waiting:  # before the outcome is looked at, so that it has work meanwhile
                        worker.give(waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.connection.close()  # it ends by itself
                        released.append(worker)
                yield event
    finally:
        _end(workers + released)
        if (workers or died) and isinstance(config.output, Path):  # what was killed could not tidy up
            sweep(config.output)


def _least_used(gpus: int, workers: list[WorkerProcess]) -> int | None:
    used = [worker.gpu for worker in workers]
    return min(range(gpus), key=used.count) if gpus > 1 else None


def _end(workers: list[WorkerProcess]) -> None:
    for _ in range(REQUESTS):  # a process that hears one leaves nothing of what it has not finished
        for worker in workers:
            if not worker.connection.closed:
                worker.process.terminate()
        until = monotonic() + PATIENCE
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, until - monotonic()))
        workers = [worker for worker in workers if worker.process.poll() is None]
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


def _death(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def serve(connection: Connection) -> None:
    """The worker's side, until no more videos come."""
    last = 0.0
    try:
        with closing(_work(connection)) as events:
            for event in events:
                if isinstance(event, Progress):
                    if event.done != event.total and monotonic() - last <= PROGRESS_SECONDS:
                        continue
                    last = monotonic()
                try:
                    connection.send(event)
                except OSError:  # nobody is left who wants this video
                    raise KeyboardInterrupt from None
    except EOFError:
        return
    except ExtractorError as error:
        connection.send(error)
    except Exception as error:  # of no video: each of those has an Outcome of its own
        hint = "run it again with [[workers=1]] and LSTR_DEBUG=1, and report what it prints."
        connection.send(ExtractorError(f"A worker process met {described(error)}", hint))


def _work(connection: Connection) -> Generator[WorkerReady | Progress | Outcome, None, None]:
    """What comes of each video that is received. Raises EOFError when no more comes, and as `open_worker`."""
    with open_worker(connection.recv()) as extractor:
        yield WorkerReady()
        while True:
            video_id, source = connection.recv()
            yield from extractor.one_by_one({video_id: source})


def _unraisable(unraisable: Any) -> None:
    """Tell of what Python drops, but for an interrupt that came in a destructor: the parent sends another."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


def main() -> None:
    """Serve the process at the other end of the socket; it ends this one by SIGTERM, or by ending itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that nothing half-written stays
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its parent ends it
    sys.unraisablehook = _unraisable
    with suppress(KeyboardInterrupt, BrokenPipeError):
        serve(Connection(int(sys.argv[1])))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
