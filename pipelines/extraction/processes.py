"""Videos over processes of this machine, each with its share of the cores and one of the GPUs.

`python -m pipelines.extraction.processes FD` is such a process, which its parent talks to over a socket: it takes a
WorkerConfig, then (id, source) of one video after the other, and tells ("ready",), ("progress", id, done, total),
("done", Outcome), or last of all ("error", error).
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic

import pipelines
from extractors.errors import ExtractorError
from pipelines.extraction.outcome import REPORT, Outcome, described, failed
from pipelines.extraction.worker import Worker, WorkerConfig
from pipelines.files.atomic import sweep
from pipelines.files.remote import Place
from pipelines.progress import Tell

STARTS = 3  # processes that may die in a row while they start, before the machine is taken to be at fault
PATIENCE = 1.0  # seconds between two requests to end
REQUESTS = 5  # so many, then a process is killed
SAID_EVERY = 0.2  # seconds between two words on progress


class WorkerProcess:
    """A process that extracts one video after the other; `at` is the one it is at.

    `gpu` counts those that CUDA_VISIBLE_DEVICES names; None leaves the choice to the process.
    """

    def __init__(self, config: WorkerConfig, gpu: int | None):
        ours, theirs = socket.socketpair()
        root = str(Path(pipelines.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(config.threads)}
        if gpu is not None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            env["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
        with theirs:
            # a group of its own: Ctrl-C is the parent's to hear, which then ends its workers
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=env,
                process_group=0,
            )
        self.gpu = gpu
        self.connection = Connection(ours.detach())
        self.ready = False
        self.at: tuple[str, Place] | None = None
        self._send(config)

    def give(self, video_id: str, source: Place) -> None:
        """Its next video."""
        self.at = (video_id, source)
        self._send(self.at)

    def _send(self, what: object) -> None:
        with suppress(OSError):  # it is dead, which the next reading finds
            self.connection.send(what)

    def release(self) -> None:
        """There are no more videos: it ends by itself."""
        self.connection.close()

    def ask_to_end(self) -> None:
        """It leaves nothing of what it has not finished; again when it was not heard."""
        if not self.connection.closed:
            self.process.terminate()

    def has_ended(self, seconds: float) -> bool:
        """Wait for it so many seconds."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True


def over_processes(
    to_do: dict[str, Place], config: WorkerConfig, processes: int, progress: Tell, gpus: int = 0
) -> Iterator[Outcome]:
    """An engine of `pipelines.extraction.extract.run`: at most so many processes, shared out evenly over `gpus`.

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
                workers.append(WorkerProcess(config, _least_used(gpus, workers)))
                workers[-1].give(*waiting.popleft())
            for connection in wait([worker.connection for worker in workers]):
                worker = next(w for w in workers if w.connection is connection)
                try:
                    kind, *what = connection.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    connection.close()
                    how = _death(worker.process.wait())
                    lost, died = 0 if worker.ready else lost + 1, True
                    if lost == STARTS:
                        raise ExtractorError(
                            f"{STARTS} worker processes in a row ended while they started ({how}).",
                            "is memory short? use fewer --workers; with 1 no other process is started.",
                        ) from None
                    video_id, source = worker.at
                    if video_id in suspects:
                        reason = f"{source} ended the process that extracted it, twice ({how})."
                        yield failed(video_id, source, reason, "is memory short? try it alone, with --workers 1.")
                    else:
                        waiting.append(worker.at)
                    if worker.ready:
                        suspects.add(video_id)
                    continue
                if kind == "ready":
                    worker.ready, lost = True, 0
                elif kind == "progress":
                    progress(*what)
                elif kind == "error":
                    raise what[0]
                else:
                    if waiting:  # before the outcome is looked at, so that it has work meanwhile
                        worker.give(*waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.release()
                        released.append(worker)
                    yield what[0]
    finally:
        _end(workers + released)
        if (workers or died) and isinstance(config.features, Path):  # what was killed could not tidy up
            sweep(config.features)


def _least_used(gpus: int, workers: list[WorkerProcess]) -> int | None:
    used = [worker.gpu for worker in workers]
    return min(range(gpus), key=used.count) if gpus > 1 else None


def _end(workers: list[WorkerProcess]) -> None:
    for _ in range(REQUESTS):
        for worker in workers:
            worker.ask_to_end()
        until = monotonic() + PATIENCE
        workers = [worker for worker in workers if not worker.has_ended(until - monotonic())]
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


def _death(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def serve(connection: Connection) -> None:
    """The worker's side, until there are no more videos."""
    told = 0.0

    def progress(video_id: str, done: int, total: int) -> None:
        nonlocal told
        if done == total or monotonic() - told > SAID_EVERY:
            told = monotonic()
            try:
                connection.send(("progress", video_id, done, total))
            except OSError:  # nobody is left who wants this video
                raise KeyboardInterrupt from None

    try:
        with Worker(connection.recv()) as worker:
            connection.send(("ready",))
            while True:
                connection.send(("done", worker.extract(*connection.recv(), progress)))
    except EOFError:
        return
    except ExtractorError as error:
        connection.send(("error", error))
    except Exception as error:
        if os.environ.get("LSTR_DEBUG"):
            raise
        connection.send(("error", ExtractorError(f"A worker process met {described(error)}", REPORT)))


def main() -> None:
    """Serve the process at the other end of the socket; it asks to end by SIGTERM, or by ending itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that nothing half-written stays
    with suppress(KeyboardInterrupt, BrokenPipeError):
        serve(Connection(int(sys.argv[1])))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending


if __name__ == "__main__":
    main()
