"""The feature networks of a finetuning: one after the other or several at once, on one process or many; resumable.

The threads of one network wait for each other after every layer, and much longer where other programs run: on two
quiet cores, two networks at once take 0.7 of the time that they take one after the other. So networks that are trained
at once each have a process, `main`, to which its parent sends a NetworkJob. It sends what `train_network` yields.
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

import torch

from lstr.errors import LabelsError, LstrError
from lstr.extractors.flow.workers import DIFFERENCE, default_workers
from lstr.extractors.networks.manifest import fit_name
from lstr.extractors.networks.weights_file import ModelCard, WeightSources, is_weights_folder, network_file
from lstr.extractors.networks.weights_folder import WeightsFolder, open_weights, write_network, write_weights
from lstr.extractors.streams import STREAMS, in_training_order
from lstr.extractors.twostream import build_twostream
from lstr.files.content import write_json
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.pipelines.child_process import ChildProcess, end, serve_parent, tell_parent
from lstr.pipelines.features.extraction_plan import cost_of
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training.folds import Pair, align
from lstr.pipelines.training.frame_cache import Cached
from lstr.pipelines.training.network_config import FinetuneConfig, trainable_network
from lstr.pipelines.training.network_run import NetworkRun
from lstr.pipelines.training.network_samples import SampleSet, samples_of, single_chunks
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.recogniser import NetworksToTrain, begin_with, recogniser
from lstr.pipelines.training.run_folder import NETWORK_STATES, RunFolder, Step

MAX_AT_ONCE = 4  # networks; each takes about a gigabyte of memory
# Images that each learns from at least; for fewer, the start of a process costs more than it saves.
FEWEST_IMAGES = 3200
MAX_READERS = 12


@dataclass(frozen=True)
class NetworkFiles:
    """One network of a finetuning, and its files. `fold` is the one that it never sees, or None for all videos'."""

    folder: Path
    stream: str
    fold: int | None

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
        """What finetune.json will hold of it, until all are finished."""
        return (self.folder / self.run.state).with_suffix(".json")

    def is_finished(self) -> bool:
        """Whether it is trained and written."""
        return network_file(self.folder, self.stream, self.fold).is_file() and self.result_file.is_file()


@dataclass(frozen=True)
class Training:
    """All that makes the networks what they are."""

    networks: NetworksToTrain
    labels: Labels
    videos: Mapping[str, Cached]
    """By id: all that any pair learns from or is chosen by"""
    pairs: list[Pair]
    folds: Mapping[str, int]
    seconds: float | None = None
    """Seconds that all may train for together; None for no bound"""

    @property
    def streams(self) -> list[str]:
        """The streams that are trained, the first one first."""
        return in_training_order(self.networks.configs)

    def seconds_of(self, stream: str, left: Sequence[str], spent: float) -> float | None:
        """Seconds that a network may train for, by what each costs that is `left` with it, by stream; None unbounded.

        So what one took too long, as its last epoch does, the others make up for.
        """
        if self.seconds is None:
            return None
        parts, configs = self.networks.preset.parts, self.networks.configs
        costs = {s: cost_of(parts[s].network).training * config.epochs for s, config in configs.items()}
        return max(0.001, self.seconds - spent) * costs[stream] / (sum(costs[other] for other in left) or 1)

    def images(self, stream: str) -> int:
        """How many images each network of a stream learns from, over all of its epochs."""
        config = self.networks.configs[stream]
        n_chunks = sum(len(self.videos[i].chunks) for i in self.pairs[0].training)
        return config.epochs * config.draws_of(n_chunks) * config.segments

    def settings(self, device: str, ranks: Ranks = ALONE) -> dict:
        """The content of config.json: what has to be the same for a run to be resumed, and where it was made."""
        preset, initial = self.networks.preset, self.networks.initial
        settled = {stream: asdict(part) for stream, part in preset.parts.items()}
        for entries in settled.values():
            entries.pop("follows")  # its size is that of these videos
        streams = {
            stream: {**config.to_dict(), "init": initial[stream].sha256, **settled[stream]}
            for stream, config in self.networks.configs.items()
        }
        videos = {}
        for video_id, video in sorted(self.videos.items()):
            segments = [(s.label, s.start, s.end) for s in self.labels.videos[video_id].segments]
            labels = hashlib.sha256(json.dumps(segments).encode()).hexdigest()[:16]
            part = "training" if video_id in self.pairs[0].training else "validation"
            videos[video_id] = {"sha256": video.sha256, "labels": labels, "part": part}
        recipe = {n: v for n, v in asdict(preset).items() if n not in STREAMS}
        settings = {"streams": streams, "recipe": recipe, "folds": len(self.pairs) - 1}
        settings |= {"classes": self.labels.classes, "videos": videos, "made_by": provenance(device, ranks.size)}
        return settings


@dataclass(frozen=True)
class NetworkJob:
    """One network to train; it can be pickled."""

    training: Training
    network: NetworkFiles
    pair: Pair
    device: str = "cpu"
    loaders: int = 0
    """Threads that read ahead"""
    seconds: float | None = None
    """Seconds that it may train for; None for no bound"""

    @property
    def is_trained(self) -> bool:
        """Whether it takes a training at all; a network of no epochs stays as it begins."""
        return self.training.networks.configs[self.network.stream].epochs > 0


def train_network(job: NetworkJob, ranks: Ranks = ALONE) -> Iterator[Progress | Step]:
    """Train one network, or resume its training, and write its file.

    Yields Progress after each step, a Step after each epoch. Raises LabelsError where its videos show no action,
    LstrError when a loss is not finite.
    """
    training, network, pair = job.training, job.network, job.pair
    stream, labels, networks = network.stream, training.labels, training.networks
    config, preset, initial = networks.configs[stream], networks.preset.parts[stream], networks.initial[stream]
    model = recogniser(stream, preset, len(labels.classes), config)
    begin_with(model, initial, trainable_network(preset.network), config.seed)
    model.to(device=job.device).to(memory_format=torch.channels_last)
    learns = {i: training.videos[i].sha256 for i in pair.seen} if job.is_trained else {}
    seen = {**initial.seen, **learns}
    card = ModelCard(fit_name(network.folder), stream, preset.network, labels.classes, seen, None, pair.fold)
    card = replace(card, origin=initial.origin)
    if not job.is_trained:
        if ranks.first:
            write_json(network.result_file, {"mAP": None, "epoch": 0, "epochs": 0, "seconds": 0.0})
            write_network(network.folder, model.state_dict(), card)
        ranks.wait()
        return

    learnt, chosen_by = ({i: training.videos[i].chunks for i in ids} for ids in (pair.training, pair.validation))
    samples = samples_of({i: (labels.videos[i], len(chunks)) for i, chunks in learnt.items()}, labels.classes)
    if all(labels.classes[sample.label] == BACKGROUND for sample in samples):
        raise LabelsError(
            f"No labelled action lies within the {len(learnt)} training videos.", "give times in seconds of each video."
        )
    if config.samples == "chunks":
        samples = single_chunks(samples)
    data = SampleSet(samples, learnt, stream, config, directed=networks.preset.algorithm != DIFFERENCE)
    run = NetworkRun(
        network.run, stream, card.to_json(), model, data, job.loaders, ranks, chosen_by, labels, job.seconds
    )
    yield from run.train()
    if ranks.first:
        at = run.position
        result = {"mAP": run.best_mAP, "epoch": at.best_epoch or at.epoch, "epochs": at.epoch}
        write_json(network.result_file, result | {"seconds": round(at.seconds, 2)})
        write_network(network.folder, model.state_dict(), replace(card, mAP=run.best_mAP))
        (network.folder / network.run.state).unlink(missing_ok=True)
    ranks.wait()


def best_at_once(n_networks: int, images: int, device: str) -> int:
    """How many networks of one stream are best trained at once; images: all that each learns from, over its epochs.

    It follows from the job and the number of cores alone, so that a training that goes on ends in the same bits.
    """
    if device != "cpu" or images < FEWEST_IMAGES:
        return 1
    most = max(1, min(MAX_AT_ONCE, n_networks, default_workers()))
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


def train_at_once(jobs: Sequence[NetworkJob], threads: int) -> Iterator[Progress | Step]:
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
                        raise LstrError(
                            f"The process that trained the {process.job.network.name} network ended "
                            f"({process.death()}).",
                            "is memory short? run the same command again with --set at_once=1; it resumes.",
                        ) from None
                    continue
                if isinstance(event, LstrError):
                    raise event
                yield event
    finally:
        end([process for process in processes if process.process.poll() is None])


def main() -> None:
    """Train the network that the parent process sends."""

    def work(connection: Connection) -> Generator[Progress | Step, None, None]:
        yield from train_network(connection.recv())

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

    at_once: networks of a stream that are trained at once by other processes; None for what suits job and machine.
    align: whether the networks of folds get a last layer that maps features to those of the network of all videos.
    Yields Progress after each step, a Step after each epoch, and Finished with the folder. Raises CheckpointError
    where a run is in the way or another one, LstrError when a loss is not finite, OutputError.
    """
    settings = training.settings(device, ranks)
    if ranks.first:
        RunFolder(folder).begin(settings, resume, _with_defaults)
    ranks.wait()
    if not ranks.from_first(lambda: is_weights_folder(folder)):
        if loaders is None:
            cores = (os.cpu_count() or 1) // ranks.size
            # on a CPU few, for the network needs the cores
            loaders = max(1, cores // 4) if device == "cpu" else min(MAX_READERS, max(1, cores - 1))
        rounds = _rounds(training, folder, device, 1 if ranks.size > 1 else at_once, loaders)
        done = {job.network for jobs in rounds for job in jobs if ranks.from_first(job.network.is_finished)}
        rounds, started = [jobs for jobs in rounds if any(job.network not in done for job in jobs)], perf_counter()
        for at, jobs in enumerate(rounds):
            others, spent = [later[0].network.stream for later in rounds[at:]], perf_counter() - started
            seconds = training.seconds_of(jobs[0].network.stream, others, spent)
            todo = [replace(job, seconds=seconds) for job in jobs if job.network not in done]
            for job in todo:
                if ranks.first:
                    job.network.run.remove_unsaved_log()
            yield from train_at_once(todo, threads_of(len(jobs))) if len(jobs) > 1 else train_network(todo[0], ranks)
        if ranks.first:
            _finish(training, folder, settings, device, align)
        ranks.wait()
    yield Finished(open_weights(folder))


def _with_defaults(before: dict) -> dict:
    """Settings of a run in which those that are newer than the run have their defaults."""
    streams = {stream: {**FinetuneConfig().to_dict(), **values} for stream, values in before["streams"].items()}
    return {**before, "streams": streams}


def _rounds(training: Training, folder: Path, device: str, at_once: int | None, loaders: int) -> list[list[NetworkJob]]:
    """All networks, those of a round trained at once."""
    rounds: list[list[NetworkJob]] = []
    for stream in training.streams:
        jobs = [
            NetworkJob(training, NetworkFiles(folder, stream, pair.fold), pair, device, loaders)
            for pair in training.pairs
        ]
        most = at_once or best_at_once(len(jobs), training.images(stream), device)
        most = most if jobs[0].is_trained else 1
        rounds += [jobs[at : at + most] for at in range(0, len(jobs), most)]
    return rounds


def _finish(training: Training, folder: Path, settings: dict, device: str, is_aligned: bool) -> None:
    """Align the networks of folds, describe all in the folder, and remove what only a resumed run needs."""
    streams = training.streams
    blind = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    chunks = {video_id: video.chunks for video_id, video in training.videos.items()}
    for stream in (s for s in streams if blind and is_aligned and training.networks.configs[s].epochs):
        align(folder, training.networks.preset, stream, blind, chunks, device)
    results: dict[str, dict[str, dict]] = {stream: {} for stream in streams}
    for stream, pair in product(streams, training.pairs):
        file = NetworkFiles(folder, stream, pair.fold).result_file
        results[stream][pair.name] = json.loads(file.read_text(encoding="utf-8"))
    whole = training.pairs[0]
    details = {
        "validation": {i: training.videos[i].sha256 for i in whole.validation},
        "metrics": results,
        "config": {stream: config.to_dict() for stream, config in training.networks.configs.items()},
        "seconds": round(sum(result["seconds"] for pairs in results.values() for result in pairs.values()), 2),
        "versions": settings["made_by"]["versions"],
    }
    seen = {i: training.videos[i].sha256 for i in whole.training}
    preset, n_folds = training.networks.preset, len(training.pairs) - 1
    files = {stream: str(network_file(folder, stream)) for stream in streams}
    recipe = build_twostream(preset.narrowed(streams), WeightSources(files), device).recipe
    write_weights(folder, recipe, training.folds, seen, details, n_folds)
    shutil.rmtree(folder / NETWORK_STATES, ignore_errors=True)
