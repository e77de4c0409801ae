"""Train the feature networks of a finetuning job, in sequence or in parallel, with one or more processes; resumable.

The threads of one network wait for each other after every layer, and much longer if other programs run: on two idle
cores, two networks in parallel take 0.7 of the time of training them in sequence. Therefore each parallel network has a
process, `main`, which gets the arguments of `train_network` from its parent.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from multiprocessing.connection import wait
from pathlib import Path
from time import perf_counter

from lstr.errors import LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.weights_file import WeightSources, network_file
from lstr.extractors.networks.weights_folder import WeightsFolder, open_weights, write_weights
from lstr.extractors.streams import in_training_order
from lstr.extractors.twostream import build_twostream
from lstr.pipelines.child_process import ChildProcess, end, serve_parent
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.training import ranks
from lstr.pipelines.training.network_config import trainable_network
from lstr.pipelines.training.network_run import NetworkFiles, Training, train_network
from lstr.pipelines.training.run import NETWORK_STATES, RunFolder, Step

MAX_AT_ONCE = 4  # networks; each takes about a gigabyte of memory
# Images that each learns from at least; for fewer, the start of a process costs more than it saves.
MIN_IMAGES = 3200


def best_at_once(n_networks: int, images: int, device: str) -> int:
    """Return how many networks of one stream are best trained at once; images: that each learns from in all epochs.

    It follows from the job and the number of cores alone, so that a resumed training ends in the same bits.
    """
    if device != "cpu" or images < MIN_IMAGES:
        return 1
    most = max(1, min(MAX_AT_ONCE, n_networks, default_workers()))
    return -(-n_networks // -(-n_networks // most))  # as even as can be: of four networks on three cores, two


def threads_of(n_at_once: int) -> int:
    """Return the threads of torch for each network if N are trained at once."""
    return max(1, default_workers() // n_at_once)


def train_at_once(jobs: Mapping[NetworkFiles, Sequence], threads: int) -> Iterator[Progress | Step]:
    """Train networks, each in a process with N threads of torch, until all are written.

    Yields what `train_network` does, of all networks as it comes. Close the generator to end all processes. Raises
    the LstrError of a process, and one if a process dies.

    Args:
        jobs: arguments of `train_network` by network.
    """
    processes = {network: ChildProcess(__name__, threads) for network in jobs}
    try:
        for network, process in processes.items():
            process.send(jobs[network])
        left = dict(processes)
        while left:
            readable = wait([process.connection for process in left.values()])
            for network, process in [item for item in left.items() if item[1].connection in readable]:
                try:
                    event = process.connection.recv()
                except (EOFError, OSError):
                    del left[network]
                    process.connection.close()
                    if process.process.wait():
                        raise LstrError(
                            f"The process that trained the {network.name} network ended ({process.describe_exit()}).",
                            "run the same command again to resume; if memory is short, add --set at_once=1.",
                        ) from None
                    continue
                if isinstance(event, LstrError):
                    raise event
                yield event
    finally:
        end([process for process in processes.values() if process.process.poll() is None])


def main() -> None:
    """Train the network that the parent process sends."""
    hint = "run it again with LSTR_DEBUG=1, and report its output."
    serve_parent(lambda connection: train_network(*connection.recv()), hint)


def train_networks(
    training: Training, folder: Path, device: str = "cpu", resume: bool = False, at_once: int | None = 1
) -> Iterator[Progress | Step | Finished[WeightsFolder]]:
    """Train each network that is not finished, and make `folder` a weights folder; only the first process writes.

    Yields Progress after each step, a Step after each epoch, and Finished with the folder.

    Args:
        at_once: networks of a stream that other processes train at once; None for a number that suits job and machine.

    Raises CheckpointError if a run is in the way or had other settings, LstrError for a loss that is not finite, and
    OutputError if the folder cannot be written.
    """
    settings = training.settings(device)
    if ranks.is_first():
        RunFolder(folder).begin(settings, resume)
    ranks.wait_for_all()
    rounds, costs = list[list[NetworkFiles]](), dict[str, float]()  # the networks of a round are trained at once
    for stream in in_training_order(training.networks.configs):
        networks = [NetworkFiles(folder, stream, pair.fold) for pair in training.pairs]
        config = training.networks.configs[stream]
        entry = trainable_network(training.networks.preset.parts[stream].network, stream)
        costs[stream] = entry.training_cost * config.epochs
        images = config.images_of(sum(len(training.videos[i]) for i in training.pairs[0].training))
        most = at_once or best_at_once(len(networks), images, device)
        # processes of torchrun share each network, and one without epochs is only written
        if ranks.world_size() > 1 or not config.epochs:
            most = 1
        rounds += [networks[at : at + most] for at in range(0, len(networks), most)]
    done = {network for networks in rounds for network in networks if ranks.from_first(network.is_finished)}
    rounds, started = [networks for networks in rounds if not done.issuperset(networks)], perf_counter()
    for at, networks in enumerate(rounds):
        if limit := training.limit:  # the share, by cost, of the time that is left
            share = costs[networks[0].stream] / (sum(costs[later[0].stream] for later in rounds[at:]) or 1)
            left = limit.seconds - (perf_counter() - started)
            limit = replace(limit, seconds=left * share, later=limit.later * share)
        jobs = {network: (training, network, device, limit) for network in networks if network not in done}
        for network in jobs if ranks.is_first() else ():
            network.run.remove_unsaved_log()
        if len(networks) > 1:
            yield from train_at_once(jobs, threads_of(len(networks)))
        else:
            yield from train_network(*jobs[networks[0]])
    if ranks.is_first():
        describe_networks(training, folder, settings["made_by"]["versions"], device)
    ranks.wait_for_all()
    yield Finished(open_weights(folder))


def describe_networks(training: Training, folder: Path, versions: dict, device: str) -> None:
    """Describe all networks in their folder, and remove what only a resumed run needs."""
    networks, whole = training.networks, training.pairs[0]
    streams = in_training_order(networks.configs)
    results: dict[str, dict[str, dict]] = {stream: {} for stream in streams}
    for stream, pair in product(streams, training.pairs):
        file = NetworkFiles(folder, stream, pair.fold).result_file
        results[stream][f"fold_{pair.fold}" if pair.fold else "all"] = json.loads(file.read_text(encoding="utf-8"))
    details = {
        "validation": training.sha256(whole.validation),
        "metrics": results,
        "config": {stream: config.to_dict() for stream, config in networks.configs.items()},
        "seconds": round(sum(result["seconds"] for pairs in results.values() for result in pairs.values()), 2),
        "versions": versions,
    }
    files = {stream: str(network_file(folder, stream)) for stream in streams}
    recipe = build_twostream(networks.preset.narrowed(streams), WeightSources(files), device).recipe
    write_weights(folder, recipe, training.folds, training.sha256(whole.training), details)
    shutil.rmtree(folder / NETWORK_STATES, ignore_errors=True)
