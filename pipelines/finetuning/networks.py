"""The networks of a training, one after the other, on one process or many; resumable after any epoch."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from time import perf_counter

import torch

from lstr.errors import LabelsError
from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.streams import STREAMS
from lstr.extractors.weights.model_card import ModelCard, is_weights_folder
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.pipelines.extraction.plan import cost_of
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.finetuning.cached_videos import Cached
from lstr.pipelines.finetuning.config import NetworksToTrain, trainable_network
from lstr.pipelines.finetuning.fold_alignment import align
from lstr.pipelines.finetuning.folds import Pair
from lstr.pipelines.finetuning.network_run import NetworkRun
from lstr.pipelines.finetuning.recogniser import begin_with, recogniser
from lstr.pipelines.finetuning.run_folder import STATES, Epoch, NetworkFiles, begin_training
from lstr.pipelines.finetuning.samples import SampleSet, samples_of, single_chunks
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.weights.folder import WeightsFolder, fit_name, open_weights, write_network, write_weights

MOST_READERS = 12


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

    def seconds_of(self, stream: str, left: Sequence[str], spent: float) -> float | None:
        """Seconds that a network may train for, by what each costs that is `left` with it, by stream; None unbounded.

        So what one took too long, as its last epoch does, the others make up for.
        """
        if self.seconds is None:
            return None
        parts, configs = self.networks.preset.parts, self.networks.configs
        costs = {s: cost_of(parts[s].network).training * config.epochs for s, config in configs.items()}
        return max(0.001, self.seconds - spent) * costs[stream] / (sum(costs[other] for other in left) or 1)

    def settings(self, device: str, ranks: Ranks = ALONE) -> dict:
        """The content of settings.json: what has to be the same for a run to go on, and where it was made."""
        preset, initial = self.networks.preset, self.networks.initial
        streams = {
            stream: {**asdict(config), "init": initial[stream].sha256, **asdict(preset.parts[stream])}
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
        return json.loads(json.dumps(settings))  # lists for tuples, as the file has them


def train_networks(
    training: Training,
    folder: Path,
    device: str = "cpu",
    resume: bool = False,
    loaders: int | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Progress | Epoch | Finished[WeightsFolder]]:
    """Train each network that is not finished, and make `folder` a weights folder; only rank 0 writes.

    Yields Progress after each step, an Epoch after each epoch, and Finished with the folder. Raises CheckpointError
    where a run is in the way or another one, LstrError when a loss is not finite, OutputError.
    """
    settings = training.settings(device, ranks)
    if ranks.first:
        begin_training(folder, settings, resume)
    ranks.wait()
    if not ranks.from_first(lambda: is_weights_folder(folder)):
        loaders = default_loaders(device, ranks) if loaders is None else loaders
        streams = [
            stream for stream in reversed(STREAMS) if stream in training.networks.configs
        ]  # flow costs less, gives more
        started, networks = perf_counter(), product(streams, training.pairs)
        left = [(pair, NetworkFiles(folder, stream, pair.fold)) for stream, pair in networks]
        left = [(pair, network) for pair, network in left if not ranks.from_first(network.is_finished)]
        for at, (pair, network) in enumerate(left):
            others, spent = [other.stream for _, other in left[at:]], perf_counter() - started
            seconds = training.seconds_of(network.stream, others, spent)
            yield from _train(training, network, pair, device, loaders, ranks, seconds)
        if ranks.first:
            _finish(training, folder, streams, settings, device)
        ranks.wait()
    yield Finished(open_weights(folder))


def _finish(training: Training, folder: Path, streams: list[str], settings: dict, device: str) -> None:
    """Align the networks of folds, describe all in the folder, and remove what only a resumed run needs."""
    blind = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    chunks = {video_id: video.chunks for video_id, video in training.videos.items()}
    for stream in (s for s in streams if blind and training.networks.configs[s].epochs):
        align(folder, training.networks.preset, stream, blind, chunks, device)
    results: dict[str, dict[str, dict]] = {stream: {} for stream in streams}
    for stream, pair in product(streams, training.pairs):
        file = NetworkFiles(folder, stream, pair.fold).result_file
        results[stream][pair.name] = json.loads(file.read_text(encoding="utf-8"))
    whole = training.pairs[0]
    details = {
        "validation": {i: training.videos[i].sha256 for i in whole.validation},
        "metrics": results,
        "config": {stream: asdict(config) for stream, config in training.networks.configs.items()},
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


def _train(
    training: Training,
    network: NetworkFiles,
    pair: Pair,
    device: str,
    loaders: int,
    ranks: Ranks,
    seconds: float | None,
) -> Iterator[Progress | Epoch]:
    """Train one network, or go on with it, and write its file."""
    stream, labels, networks = network.stream, training.labels, training.networks
    config, preset, initial = networks.configs[stream], networks.preset.parts[stream], networks.initial[stream]
    model = recogniser(stream, preset, len(labels.classes), config)
    begin_with(model, initial, trainable_network(preset.network), config.seed)
    model.to(device=device).to(memory_format=torch.channels_last)
    learns = {i: training.videos[i].sha256 for i in pair.seen} if config.epochs else {}
    seen = {**initial.seen, **learns}
    card = ModelCard(fit_name(network.folder), stream, preset.network, labels.classes, seen, None, pair.fold)
    card = replace(card, origin=initial.origin)
    if not config.epochs:
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
    run = NetworkRun(network, card.to_json(), model, data, loaders, ranks, chosen_by, labels, seconds)
    yield from run.train()
    if ranks.first:
        position = run.position
        result = {"mAP": position.best_mAP, "epoch": position.best_epoch or position.epoch, "epochs": position.epoch}
        write_json(network.result_file, result | {"seconds": round(position.seconds, 2)})
        write_network(network.folder, model.state_dict(), replace(card, mAP=position.best_mAP))
        network.state_file.unlink(missing_ok=True)
    ranks.wait()
