"""The networks of a training, one after the other or several at once, on one process or many; resumable."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter

from lstr.extractors.weights.model_card import is_weights_folder
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.training.fold_alignment import align
from lstr.pipelines.training.network_processes import best_at_once, threads_of, train_at_once
from lstr.pipelines.training.network_training import NetworkJob, Training, forget_unsaved, train_network
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.run_folder import STATES, Epoch, NetworkFiles, begin_training
from lstr.pipelines.weights.folder import WeightsFolder, open_weights, write_weights

MOST_READERS = 12


def train_networks(
    training: Training,
    folder: Path,
    device: str = "cpu",
    resume: bool = False,
    loaders: int | None = None,
    ranks: Ranks = ALONE,
    at_once: int | None = 1,
) -> Iterator[Progress | Epoch | Finished[WeightsFolder]]:
    """Train each network that is not finished, and make `folder` a weights folder; only rank 0 writes.

    at_once: networks of a stream that are trained at once by other processes; None for what suits job and machine.
    Yields Progress after each step, an Epoch after each epoch, and Finished with the folder. Raises CheckpointError
    where a run is in the way or another one, LstrError when a loss is not finite, OutputError.
    """
    settings = training.settings(device, ranks)
    if ranks.first:
        begin_training(folder, settings, resume)
    ranks.wait()
    if not ranks.from_first(lambda: is_weights_folder(folder)):
        loaders = default_loaders(device, ranks) if loaders is None else loaders
        rounds = _rounds(training, folder, device, 1 if ranks.size > 1 else at_once, loaders)
        done = {job.network for jobs in rounds for job in jobs if ranks.from_first(job.network.is_finished)}
        rounds, started = [jobs for jobs in rounds if any(job.network not in done for job in jobs)], perf_counter()
        for at, jobs in enumerate(rounds):
            others, spent = [later[0].network.stream for later in rounds[at:]], perf_counter() - started
            seconds = training.seconds_of(jobs[0].network.stream, others, spent)
            todo = [replace(job, seconds=seconds) for job in jobs if job.network not in done]
            for job in todo:
                if ranks.first:
                    forget_unsaved(job.network)
            yield from train_at_once(todo, threads_of(len(jobs))) if len(jobs) > 1 else train_network(todo[0], ranks)
        if ranks.first:
            _finish(training, folder, settings, device)
        ranks.wait()
    yield Finished(open_weights(folder))


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


def _finish(training: Training, folder: Path, settings: dict, device: str) -> None:
    """Align the networks of folds, describe all in the folder, and remove what only a resumed run needs."""
    streams = training.streams
    blind = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    chunks = {video_id: video.chunks for video_id, video in training.videos.items()}
    is_whole = all(video_id in training.folds for video_id in training.videos)  # else no model learns from them all
    for stream in (s for s in streams if blind and is_whole and training.networks.configs[s].epochs):
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
    write_weights(folder, preset, training.folds, seen, details, n_folds, device=device)
    shutil.rmtree(folder / STATES, ignore_errors=True)


def default_loaders(device: str, ranks: Ranks = ALONE) -> int:
    """Threads that read ahead for each process that trains: on a CPU few, for the network needs the cores."""
    cores = (os.cpu_count() or 1) // ranks.size
    return max(1, cores // 4) if device == "cpu" else min(MOST_READERS, max(1, cores - 1))
