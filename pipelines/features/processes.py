"""Videos over processes of this machine, each with its share of the cores and one of the GPUs.

`main` is such a process, which its parent talks to over a socket: it takes ExtractOptions, then (id, source) of one
video after the other, and sends READY, Progress, an Outcome per video, or last of all an error.
"""

import os
from collections import deque
from collections.abc import Generator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path

from lstr.errors import ExtractorError, LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.files.atomic import sweep
from lstr.files.remote import Place
from lstr.pipelines.child_process import ChildProcess, end, send_events, serve_parent
from lstr.pipelines.failures import Failure
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.video import open_worker
from lstr.pipelines.progress import Progress

# Processes that die in a row while they start, before the machine is taken to be at fault.
STARTS = 3
READY = "ready"  # message of a worker process that has its networks


class WorkerProcess(ChildProcess):
    """A process that extracts one video after the other, begun with the first; `at` is the one it is at.

    `gpu` counts those that CUDA_VISIBLE_DEVICES names; None leaves the choice to the process.
    """

    def __init__(self, config: ExtractOptions, gpu: int | None, first: tuple[str, Place]):
        env = {}
        if gpu is not None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            env["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
        super().__init__(__name__, config.threads or default_workers(), env)
        self.gpu = gpu
        self.ready = False
        self.send(config)
        self.give(first)

    def give(self, video: tuple[str, Place]) -> None:
        """Send it its next video, (id, source)."""
        self.at = video
        self.send(video)


def over_processes(
    to_do: Mapping[str, Place], config: ExtractOptions, processes: int, gpus: int = 0
) -> Generator[Progress | Outcome, None, None]:
    """An engine of `lstr.pipelines.features.extraction`: at most so many processes, shared out evenly over `gpus`.

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
                used = [worker.gpu for worker in workers]
                gpu = min(range(gpus), key=used.count) if gpus > 1 else None
                workers.append(WorkerProcess(config, gpu, waiting.popleft()))
            readable = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in readable]:
                try:
                    event = worker.connection.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.connection.close()
                    how = worker.describe_exit()
                    lost, died = 0 if worker.ready else lost + 1, True
                    if lost == STARTS:
                        raise ExtractorError(
                            f"{STARTS} worker processes in a row ended while they started ({how}).",
                            "is memory short? use fewer workers (`--workers`); with 1 no other process is started.",
                        ) from None
                    video_id, source = worker.at
                    if video_id in suspects:
                        reason = f"{source} ended the process that extracted it, twice ({how})."
                        hint = "is memory short? try it alone, with --workers 1."
                        yield Outcome.failed(video_id, source, Failure(reason, hint))
                    else:
                        waiting.append(worker.at)
                    if worker.ready:
                        suspects.add(video_id)
                    continue
                if isinstance(event, LstrError):
                    raise event
                if event == READY:
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
        end(workers + released)
        if (workers or died) and isinstance(config.output, Path):  # what was killed could not tidy up
            sweep(config.output)


def serve(connection: Connection) -> None:
    """Extract the videos that the parent sends, until no more come."""

    def work() -> Generator[str | Progress | Outcome, None, None]:
        with open_worker(connection.recv()) as extractor:
            yield READY
            while True:  # until recv raises EOFError
                video_id, source = connection.recv()
                yield from extractor.extract(video_id, source)

    send_events(connection, work(), "run it again with --workers 1 and LSTR_DEBUG=1, and report what it prints.")


def main() -> None:
    """What a worker process runs."""
    serve_parent(serve)
