"""Engines that extract several videos in parallel: with processes on this machine, or on a Ray cluster.

A process receives ExtractOptions over a socket, then (id, source) of each video in turn. It sends READY, Progress, an
Outcome per video, and at the end an error if there is one.

A cluster gets one task per video. A task runs on any node with enough resources, and is repeated on another node if its
node is lost. A node gets the id and URL of a video, the settings of the job and, once per node, the weights files. The
node itself reads the source and writes the feature folder, so every node must be able to access both.
"""

import io
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from lstr import __version__
from lstr.errors import DeviceError, ExtractorError, LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.archive import TENSORS
from lstr.extractors.networks.weights_file import network_files, read_content
from lstr.extractors.streams import STREAMS
from lstr.files.atomic import scratch, sweep
from lstr.files.remote import Place
from lstr.pipelines.child_process import ChildProcess, end, serve_parent
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, Share
from lstr.pipelines.features.video import VideoExtractor, open_worker
from lstr.pipelines.progress import Notice, Progress

# Number of consecutive processes that die at their start before the job fails.
STARTS = 3
READY = "ready"  # message of a worker process after it has built its networks
RETRIES = 5  # attempts for a video if its node or process is lost
CORES = 2  # per video without a GPU, if nodes have them: the documented speeds were measured with two
AHEAD = 2  # submitted tasks per task that fits on the cluster: waiting tasks make an autoscaler add nodes
CONNECT_SECONDS = 10.0
CANCEL_SECONDS = 10.0
TICK = 2.0  # seconds between two looks at the nodes
INSTALL = "`pip install 'ray>=2.40'`"


class WorkerProcess(ChildProcess):
    """A process that extracts videos in sequence, starting with a first one; `at` is the current video.

    `gpu` is an index into CUDA_VISIBLE_DEVICES; with None the process chooses.
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
        """Send the next video, (id, source)."""
        self.at = video
        self.send(video)


def over_processes(
    to_do: Mapping[str, Place], config: ExtractOptions, processes: int, gpus: int = 0
) -> Generator[Progress | Outcome, None, None]:
    """Extract videos with up to `processes` processes, distributed evenly over `gpus`; an `extraction.Engine`.

    A process that dies is replaced, and its video is tried a second time after the others. Close the generator to end
    all processes. Raises the errors of workers, and ExtractorError if they die at their start.
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
                            "if memory is short, use fewer workers: --workers 1 starts no other process.",
                        ) from None
                    video_id, source = worker.at
                    if video_id in suspects:
                        reason = f"The extraction of {source} ended two worker processes ({how})."
                        hint = "if memory is short, extract it alone with --workers 1."
                        yield Outcome(video_id, source, "failed", reason=reason, hint=hint)
                    else:  # another process may have exhausted the memory, so try the video a second time
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
                    if waiting:  # before handling the outcome, so that the process has work
                        worker.give(waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.connection.close()  # the process ends by itself
                        released.append(worker)
                yield event
    finally:
        end(workers + released)
        if (workers or died) and isinstance(config.output, Path):  # killed processes leave temporary files
            sweep(config.output)


def main() -> None:
    """Extract the videos that the parent process sends, until it closes the connection."""

    def work(connection: Connection) -> Generator[str | Progress | Outcome, None, None]:
        with open_worker(connection.recv()) as extractor:
            yield READY
            while True:  # until recv raises EOFError
                video_id, source = connection.recv()
                yield from extractor.extract(video_id, source)

    serve_parent(work, "run it again with --workers 1 and LSTR_DEBUG=1, and report its output.")


Portion = tuple[int, int]  # cores and GPUs of a node for one video


def portion_of(nodes: Iterable[Mapping[str, float]], device: str | None = None, cores: int | None = None) -> Portion:
    """Return the resources per video: on a cluster with GPUs a GPU and its share of the cores, else two cores.

    `device` (cpu, cuda or cuda:N; Ray ignores N) and `cores` are the requested ones.
    """
    nodes = [node for node in nodes if node.get("CPU", 0) >= 1]
    with_gpu = [node for node in nodes if node.get("GPU", 0) >= 1]
    if (device or "").startswith("cuda") or (with_gpu and device is None):
        return cores or max(1, int(min((n["CPU"] // n["GPU"] for n in with_gpu), default=CORES))), 1
    return cores or int(min([CORES, *(node["CPU"] for node in nodes)])), 0


def count_room(portion: Portion, nodes: Iterable[Mapping[str, float]]) -> int:
    """Return how many videos nodes with these resources can extract at once."""
    cores, gpus = portion
    by_cores = ([node.get("CPU", 0) // cores, *([node.get("GPU", 0) // gpus] if gpus else [])] for node in nodes)
    return int(sum(map(min, by_cores)))


def share_cluster(portion: Portion, n_videos: int, most: int | None = None) -> Share:
    """Return how many videos the connected cluster extracts at once, at most `most`, and with how many threads each."""
    room = max(1, count_room(portion, nodes().values()))
    return max(1, min(n_videos, room, most or room)), portion[0]


@contextmanager
def cluster() -> Iterator[None]:
    """Connect to the Ray cluster at $RAY_ADDRESS, or by Ray's default, which may be only this machine.

    Ray's output is suppressed. Raises DeviceError.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a FutureWarning of Ray
    try:
        import ray
    except ImportError as error:
        raise DeviceError("The engine ray needs Ray, which is not installed.", f"{INSTALL}.") from error
    if ray.is_initialized():
        yield
        return
    with redirect_stdout(_WithoutRay(sys.stdout)):
        before = signal.getsignal(signal.SIGTERM)
        try:
            # Test the connection first, because Ray would retry for minutes if no server listens.
            host, _, port = os.environ.get("RAY_ADDRESS", "").removeprefix("ray://").rpartition(":")
            if port.isdigit():
                socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise DeviceError(
                f"No Ray cluster answers at {os.environ.get('RAY_ADDRESS', 'this machine')}.",
                "start one with `ray start --head`, or set RAY_ADDRESS to the address it printed, HOST:PORT.",
            ) from error
        finally:  # Ray's signal handler would end this process on SIGTERM with exit code 1
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
        try:
            yield
        finally:
            with redirect_stdout(io.StringIO()):  # Ray prints its buffered repeated lines in this thread
                ray.shutdown()


class _WithoutRay(io.TextIOBase):
    """Standard output without the output of Ray's threads, which print a page of the log when a node is lost."""

    def __init__(self, output: TextIO):
        self._output = output

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread().name.startswith("ray_") else self._output.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def nodes() -> dict[str, dict[str, float]]:
    """Return the resources of each live node of the cluster, by id."""
    import ray

    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def over_cluster(
    to_do: Mapping[str, Place], config: ExtractOptions, portion: Portion, most: int | None = None
) -> Generator[Notice | Outcome, None, None]:
    """Extract videos on the connected cluster with one task per video, at most `most` at once; an `extraction.Engine`.

    At most AHEAD times the number of tasks that fit are submitted. Close the generator to end them. Raises DeviceError,
    and errors of workers that affect all videos.
    """
    import ray
    from ray import exceptions

    contents: dict[str, np.ndarray] = {}
    for stream, path in config.weights.items():
        for name, file in network_files(path, stream).items() if path else ():
            if file.suffix == TENSORS:  # safetensors and networks of model files are sent as an equal .pth
                content = io.BytesIO()
                torch.save(read_content(file), content)
                contents[name] = np.frombuffer(content.getvalue(), np.uint8)
            else:
                contents[name] = np.fromfile(file, np.uint8)
    weights: Any = ray.put(contents)  # a reference: Ray sends the weights once to each node
    config = replace(config, output=_absolute(config.output), weights={})
    task = ray.remote(num_cpus=portion[0], num_gpus=portion[1], max_retries=RETRIES)(extract_on_node)
    waiting, known = iter(to_do.items()), nodes()
    running: dict[Any, tuple[str, Place]] = {}  # by Ray's reference to the task
    if to_do and not count_room(portion, known.values()):
        yield Notice(f"no node of the cluster has {portion[0]} cores and {portion[1]} GPUs; waiting for one")
    try:
        while True:
            room = min(AHEAD * max(1, count_room(portion, known.values())), most or len(to_do))
            while len(running) < room and (item := next(waiting, None)):
                video_id, source = item
                running[task.remote(video_id, _absolute(source), config, weights, __version__)] = item
            if not running:
                return
            for ended in ray.wait(list(running), timeout=TICK)[0]:
                video_id, source = running.pop(ended)
                try:
                    outcome = ray.get(ended)
                except exceptions.RayTaskError as error:
                    if isinstance(error.cause, ExtractorError):
                        raise error.cause from None
                    reason = str(error.cause).strip().partition("\n")[0]
                    hint = f"{INSTALL} on every node, and try again."
                    raise DeviceError(f"A node cannot run lstr ({reason}).", hint) from error
                except exceptions.RayError as error:  # every process that tried it has died
                    reason = f"The extraction of {source} ended {RETRIES + 1} processes ({type(error).__name__})."
                    hint = "extract it alone, without --set engine=ray, to see more."
                    outcome = Outcome(video_id, source, "failed", reason=reason, hint=hint)
                yield outcome
            before, known = known, nodes()
            if lost := len(before.keys() - known.keys()):
                yield Notice(f"{lost} node{'s' * (lost > 1)} lost; their videos are extracted again on other nodes")
    finally:
        for ref in running:
            ray.cancel(ref)
        # cancelled tasks clean up; tasks that do not react are killed
        for ref in running and ray.wait(list(running), num_returns=len(running), timeout=CANCEL_SECONDS)[1]:
            ray.cancel(ref, force=True)


def _absolute(place: Place) -> Place:
    return place.absolute() if isinstance(place, Path) else place


_worker: tuple[ExtractOptions, VideoExtractor, ExitStack] | None = None  # kept in this process for the next video


def extract_on_node(
    video_id: str, source: Place, config: ExtractOptions, weights: Mapping[str, np.ndarray], version: str
) -> Outcome:
    """Extract one video as a task on a node, unless an earlier attempt that seemed lost has finished it."""
    global _worker
    try:
        if version != __version__:
            raise DeviceError(
                f"lstr {__version__} is installed, not {version}.", "install the same version of lstr on every node."
            )
        if _worker is None or _worker[0] != config:
            if _worker:
                _worker[2].close()
                _worker = None
            with ExitStack() as stack:
                folder = stack.enter_context(scratch())  # weights stay on disk, because folds are loaded on demand
                for name, content in weights.items():
                    (folder / name).parent.mkdir(exist_ok=True)
                    content.tofile(folder / name)
                sources = {stream: str(folder) for stream in STREAMS if f"{stream}.pth" in weights}
                extractor = stack.enter_context(open_worker(replace(config, weights=sources)))
                _worker = (config, extractor, stack.pop_all())
        extractor = _worker[1]
        if record := extractor.folder.find_record(video_id, source):
            return Outcome(video_id, source, "kept", record["chunks"])
        (outcome,) = (e for e in extractor.extract(video_id, source) if isinstance(e, Outcome))
        return outcome
    except ExtractorError as error:
        raise type(error)(f"On node {socket.gethostname()}: {error}", error.hint) from error
