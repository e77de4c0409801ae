"""The feature networks of a finetuning: one after the other or several at once, on one process or many; resumable.

The threads of one network wait for each other after every layer, and much longer if other programs run: on two quiet
cores, two networks at once take 0.7 of the time that they take one after the other. So networks that are trained at
once each have a process, `main`, to which its parent sends the arguments of `train_network`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lstr.errors import LabelsError, LstrError
from lstr.extractors.flow.workers import DIFFERENCE, default_workers
from lstr.extractors.networks.manifest import fit_name
from lstr.extractors.networks.weights_file import (
    ModelCard,
    WeightSources,
    is_weights_folder,
    network_file,
)
from lstr.extractors.networks.weights_folder import WeightsFolder, open_weights, write_network, write_weights
from lstr.extractors.streams import STREAMS, in_training_order
from lstr.extractors.twostream import build_twostream
from lstr.files.content import write_json
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.pipelines.child_process import ChildProcess, end, serve_parent, tell_parent
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.features.extraction_plan import cost_of
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training.alignment import align_folds
from lstr.pipelines.training.network_config import FinetuneConfig, trainable_network
from lstr.pipelines.training.network_run import NetworkRun
from lstr.pipelines.training.network_samples import SampleSet, samples_of, single_chunks
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.recogniser import NetworksToTrain, begin_with, recogniser
from lstr.pipelines.training.run_folder import NETWORK_STATES, RunFolder, Step
from lstr.pipelines.training.training_videos import Pair

MAX_AT_ONCE = 4  # networks; each takes about a gigabyte of memory
# Images that each learns from at least; for fewer, the start of a process costs more than it saves.
FEWEST_IMAGES = 3200
MAX_READERS = 12


@dataclass(frozen=True)
class NetworkFiles:
    """One network of a finetuning, and its files."""

    folder: Path
    stream: str
    fold: int | None
    """The fold that it never sees; None for the network of all videos."""

    @property
    def name(self) -> str:
        """The name for people, and in the log."""
        return f"{self.stream} without fold {self.fold}" if self.fold else self.stream

    @property
    def run(self) -> RunFolder:
        """Its part of the run: its state and its lines of the log."""
        file = f"{self.stream}{f'_fold_{self.fold}' if self.fold else ''}.pth"
        return RunFolder(self.folder, f"{NETWORK_STATES}/{file}", self.name)

    @property
    def result_file(self) -> Path:
        """Its entry of finetune.json, until all networks are finished."""
        return (self.folder / self.run.state).with_suffix(".json")

    def is_finished(self) -> bool:
        """Return whether it is trained and written."""
        return network_file(self.folder, self.stream, self.fold).is_file() and self.result_file.is_file()


@dataclass(frozen=True)
class Training:
    """Everything that makes the networks what they are."""

    networks: NetworksToTrain
    labels: Labels
    videos: Mapping[str, CachedVideo]
    """By id: all that any pair learns from or is chosen by"""
    pairs: list[Pair]
    folds: Mapping[str, int]
    seconds: float | None = None
    """Maximum training time of all networks together; None without a limit"""

    @property
    def streams(self) -> list[str]:
        """The streams that are trained, in their order."""
        return in_training_order(self.networks.configs)

    def sha256(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of video files by id."""
        return {i: self.videos[i].record["sha256"] for i in ids}

    def seconds_of(self, stream: str, left: Sequence[str], spent: float) -> float | None:
        """Return the time limit of a network: its share, by cost, of the time that is left for networks of `left`.

        A network ends with an epoch and may take longer than its share, which the others make up for.
        """
        if self.seconds is None:
            return None
        parts, configs = self.networks.preset.parts, self.networks.configs
        costs = {s: cost_of(parts[s].network).training * config.epochs for s, config in configs.items()}
        return max(0.001, self.seconds - spent) * costs[stream] / (sum(costs[other] for other in left) or 1)

    def settings(self, device: str, ranks: Ranks = ALONE) -> dict:
        """Return the content of config.json: what must be the same to resume a run, and where it was made."""
        preset, initial = self.networks.preset, self.networks.initial
        streams = {}
        for stream, config in self.networks.configs.items():
            part = asdict(preset.parts[stream])
            part.pop("follows")  # its size is that of these videos
            streams[stream] = {**config.to_dict(), "init": initial[stream].sha256, **part}
        videos = {}
        for video_id, sha256 in self.sha256(sorted(self.videos)).items():
            segments = [(s.label, s.start, s.end) for s in self.labels.videos[video_id].segments]
            labels = hashlib.sha256(json.dumps(segments).encode()).hexdigest()[:16]
            subset = "training" if video_id in self.pairs[0].training else "validation"
            videos[video_id] = {"sha256": sha256, "labels": labels, "part": subset}
        recipe = {n: v for n, v in asdict(preset).items() if n not in STREAMS}
        settings = {"streams": streams, "recipe": recipe, "folds": len(self.pairs) - 1}
        return settings | {
            "classes": self.labels.classes,
            "videos": videos,
            "made_by": provenance(device, ranks.size),
        }


def train_network(
    training: Training,
    network: NetworkFiles,
    device: str = "cpu",
    loaders: int = 0,
    seconds: float | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Progress | Step]:
    """Train one network, or resume its training, and write its file.

    Yields Progress after each step, a Step after each epoch. Raises LabelsError if its videos show no action,
    LstrError if a loss is not finite.

    Args:
        loaders: threads that read ahead.
        seconds: maximum training time; None without a limit.
    """
    pair = next(pair for pair in training.pairs if pair.fold == network.fold)
    stream, labels, networks = network.stream, training.labels, training.networks
    config, preset, initial = networks.configs[stream], networks.preset.parts[stream], networks.initial[stream]
    model = recogniser(stream, preset, len(labels.classes), config)
    begin_with(model, initial, trainable_network(preset.network), config.seed)
    model.to(device=device).to(memory_format=torch.channels_last)
    seen = {**initial.seen, **(training.sha256(pair.seen) if config.epochs else {})}
    card = ModelCard(fit_name(network.folder), stream, preset.network, labels.classes, seen, None, pair.fold)
    card = replace(card, origin=initial.origin)
    result: dict[str, Any] = {"mAP": None, "epoch": 0, "epochs": 0, "seconds": 0.0}
    if config.epochs:  # else it stays as it begins
        learnt, chosen_by = ({i: training.videos[i] for i in ids} for ids in (pair.training, pair.validation))
        samples = samples_of({i: (labels.videos[i], len(chunks)) for i, chunks in learnt.items()}, labels.classes)
        if all(labels.classes[sample.label] == BACKGROUND for sample in samples):
            sentence = f"No labelled action lies within the {len(learnt)} training videos."
            raise LabelsError(sentence, "give times in seconds of each video.")
        samples = single_chunks(samples) if config.samples == "chunks" else samples
        data = SampleSet(samples, learnt, stream, config, directed=networks.preset.algorithm != DIFFERENCE)
        run = NetworkRun(network.run, stream, card.to_json(), model, data, loaders, ranks, chosen_by, labels, seconds)
        yield from run.train()
        at = run.position
        result = {"mAP": run.best_mAP, "epoch": at.best_epoch or at.epoch, "epochs": at.epoch}
        result["seconds"] = round(at.seconds, 2)
    if ranks.first:
        write_json(network.result_file, result)
        write_network(network.folder, model.state_dict(), replace(card, mAP=result["mAP"]))
        (network.folder / network.run.state).unlink(missing_ok=True)
    ranks.wait()


def best_at_once(n_networks: int, images: int, device: str) -> int:
    """Return how many networks of one stream are best trained at once; images: that each learns from in all epochs.

    It follows from the job and the number of cores alone, so that a resumed training ends in the same bits.
    """
    if device != "cpu" or images < FEWEST_IMAGES:
        return 1
    most = max(1, min(MAX_AT_ONCE, n_networks, default_workers()))
    return -(-n_networks // -(-n_networks // most))  # as even as can be: of four networks on three cores, two


def threads_of(n_at_once: int) -> int:
    """Return the threads of torch for each network if N are trained at once."""
    return max(1, default_workers() // n_at_once)


def train_at_once(jobs: Mapping[NetworkFiles, Sequence], threads: int) -> Iterator[Progress | Step]:
    """Train networks, each in a process with so many threads of torch, until all are written.

    Yields what `train_network` does, of all networks as it comes. Close the generator to end all processes. Raises the
    LstrError of a process, and one if a process dies.

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
                            f"The process that trained the {network.name} network ended ({process.death()}).",
                            "is memory short? run the same command again with --set at_once=1; it resumes.",
                        ) from None
                    continue
                if isinstance(event, LstrError):
                    raise event
                yield event
    finally:
        end([process for process in processes.values() if process.process.poll() is None])


def main() -> None:
    """Train the network that the parent process sends."""

    def work(connection: Connection) -> Generator[Progress | Step, None, None]:
        yield from train_network(*connection.recv())

    hint = "run it again with LSTR_DEBUG=1, and report what it prints."
    serve_parent(lambda connection: tell_parent(connection, work(connection), hint))


def train_networks(
    training: Training,
    folder: Path,
    device: str = "cpu",
    resume: bool = False,
    loaders: int | None = None,
    ranks: Ranks = ALONE,
    at_once: int | None = 1,
    align: bool = True,
) -> Iterator[Progress | Step | Finished[WeightsFolder]]:
    """Train each network that is not finished, and make `folder` a weights folder; only rank 0 writes.

    Yields Progress after each step, a Step after each epoch, and Finished with the folder.

    Args:
        at_once: networks of a stream that other processes train at once; None for a number that suits job and machine.
        align: whether the networks of folds get a last layer that maps features to those of the network of all videos.

    Raises:
        CheckpointError: a run is in the way, or had other settings.
        LstrError: a loss is not finite.
        OutputError: the folder cannot be written.
    """

    def upgrade(before: dict) -> dict:
        """Add the defaults of settings that are newer than the run."""
        streams = {stream: {**FinetuneConfig().to_dict(), **values} for stream, values in before["streams"].items()}
        return {**before, "streams": streams}

    settings = training.settings(device, ranks)
    if ranks.first:
        RunFolder(folder).begin(settings, resume, upgrade)
    ranks.wait()
    if ranks.from_first(lambda: is_weights_folder(folder)):
        yield Finished(open_weights(folder))
        return
    if loaders is None:
        cores = (os.cpu_count() or 1) // ranks.size
        # on a CPU few, for the network needs the cores
        loaders = max(1, cores // 4) if device == "cpu" else min(MAX_READERS, max(1, cores - 1))
    rounds: list[list[NetworkFiles]] = []  # the networks of a round are trained at once
    for stream in training.streams:
        networks = [NetworkFiles(folder, stream, pair.fold) for pair in training.pairs]
        config = training.networks.configs[stream]
        n_chunks = sum(len(training.videos[i]) for i in training.pairs[0].training)
        images = config.epochs * config.draws_of(n_chunks) * config.segments
        most = at_once or best_at_once(len(networks), images, device)
        if ranks.size > 1 or not config.epochs:
            most = 1
        rounds += [networks[at : at + most] for at in range(0, len(networks), most)]
    done = {network for networks in rounds for network in networks if ranks.from_first(network.is_finished)}
    rounds, started = [networks for networks in rounds if not done.issuperset(networks)], perf_counter()
    for at, networks in enumerate(rounds):
        others = [later[0].stream for later in rounds[at:]]
        seconds = training.seconds_of(networks[0].stream, others, perf_counter() - started)
        jobs = {network: (training, network, device, loaders, seconds) for network in networks if network not in done}
        for network in jobs if ranks.first else ():
            network.run.remove_unsaved_log()
        if len(networks) > 1:
            yield from train_at_once(jobs, threads_of(len(networks)))
        else:
            yield from train_network(*jobs[networks[0]], ranks)
    if ranks.first:
        _finish(training, folder, settings["made_by"]["versions"], device, align)
    ranks.wait()
    yield Finished(open_weights(folder))


def _finish(training: Training, folder: Path, versions: dict, device: str, is_aligned: bool) -> None:
    """Align the networks of folds, describe all in the folder, and remove what only a resumed run needs."""
    streams, networks, whole = training.streams, training.networks, training.pairs[0]
    folds = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    for stream in streams:
        if folds and is_aligned and networks.configs[stream].epochs:
            align_folds(folder, networks.preset, stream, folds, training.videos, device)
    results: dict[str, dict[str, dict]] = {stream: {} for stream in streams}
    for stream, pair in product(streams, training.pairs):
        file = NetworkFiles(folder, stream, pair.fold).result_file
        results[stream][pair.name] = json.loads(file.read_text(encoding="utf-8"))
    details = {
        "validation": training.sha256(whole.validation),
        "metrics": results,
        "config": {stream: config.to_dict() for stream, config in networks.configs.items()},
        "seconds": round(sum(result["seconds"] for pairs in results.values() for result in pairs.values()), 2),
        "versions": versions,
    }
    files = {stream: str(network_file(folder, stream)) for stream in streams}
    recipe = build_twostream(networks.preset.narrowed(streams), WeightSources(files), device).recipe
    write_weights(folder, recipe, training.folds, training.sha256(whole.training), details, len(training.pairs) - 1)
    shutil.rmtree(folder / NETWORK_STATES, ignore_errors=True)
