"""Networks that are trained at once, each by a process of its own with its share of the cores.

The threads of one network wait for each other after every layer, and much longer where other programs run: on two
quiet cores, two networks at once take 0.7 of the time that they take one after the other.
`main` is such a process, which its parent sends a NetworkJob; it sends what `train_network` yields, or an error.
"""

from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from lstr.errors import LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.pipelines.child_process import ChildProcess, end, serve_parent, tell_parent
from lstr.pipelines.progress import Progress
from lstr.pipelines.training.network_training import NetworkJob, train_network
from lstr.pipelines.training.run_folder import Epoch

MOST = 4
"""Networks at once; each takes about a gigabyte of memory."""
FEWEST_IMAGES = 3200
"""Images that each learns from at least; for fewer, the start of a process costs more than it saves."""


def best_at_once(n_networks: int, images: int, device: str) -> int:
    """How many networks of one stream are best trained at once; images: all that each learns from, over its epochs.

    It follows from the job and the number of cores alone, so that a training that goes on ends in the same bits.
    """
    if device != "cpu" or images < FEWEST_IMAGES:
        return 1
    most = max(1, min(MOST, n_networks, default_workers()))
    return -(-n_networks // -(-n_networks // most))  # as even as can be: of four networks on three cores, two


def threads_of(n_at_once: int) -> int:
    """Threads of torch for each of so many networks that are trained at once."""
    return max(1, default_workers() // n_at_once)


class NetworkProcess(ChildProcess):
    """A process that trains a network."""

    def __init__(self, job: NetworkJob, threads: int):
        super().__init__(__name__, threads)
        self.job = job
        self.send(job)


def train_at_once(jobs: Sequence[NetworkJob], threads: int) -> Iterator[Progress | Epoch]:
    """Train networks, each in a process with so many threads of torch, until all are written.

    Yields what `train_network` does, of one and another. Close the generator to end all of them. Raises what a process
    raises, and LstrError where one dies.
    """
    processes = [NetworkProcess(job, threads) for job in jobs]
    left = list(processes)
    try:
        while left:
            readable = wait([process.connection for process in left])
            for process in [process for process in left if process.connection in readable]:
                try:
                    event = process.connection.recv()
                except (EOFError, OSError):
                    left.remove(process)
                    process.connection.close()
                    if process.process.wait():
                        raise _lost(process) from None
                    continue
                if isinstance(event, LstrError):
                    raise event
                yield event
    finally:
        end([process for process in processes if process.process.poll() is None])


def _lost(process: NetworkProcess) -> LstrError:
    return LstrError(
        f"The process that trained the {process.job.network.name} network ended ({process.death()}).",
        "is memory short? run the same command again with --set at_once=1; it goes on.",
    )


def _serve(connection: Connection) -> None:
    def work() -> Generator[Progress | Epoch, None, None]:
        yield from train_network(connection.recv())

    tell_parent(connection, work(), "run it again with LSTR_DEBUG=1, and report what it prints.")


def main() -> None:
    """What such a process runs."""
    serve_parent(_serve)
