"""The networks of a training, one after the other, on one process or many; resumable after any epoch."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from lstr.errors import LabelsError
from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.presets import Preset
from lstr.extractors.recipe import STREAMS
from lstr.extractors.weights.model_card import ModelCard, is_weights_folder
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.pipelines.extraction.plan import cost_of
from lstr.pipelines.finetuning.cached_videos import Cached
from lstr.pipelines.finetuning.config import FEWEST_DRAWS, FinetuneConfig, trainable_network
from lstr.pipelines.finetuning.fold_alignment import align
from lstr.pipelines.finetuning.folds import Pair, check_blind
from lstr.pipelines.finetuning.initial_weights import Initial
from lstr.pipelines.finetuning.loader import EpochLoader
from lstr.pipelines.finetuning.network_run import NetworkRun, train_network
from lstr.pipelines.finetuning.recogniser import begin_with, recogniser
from lstr.pipelines.finetuning.run_folder import Epoch, Network, State, begin_training, clear, described
from lstr.pipelines.finetuning.samples import Augmentation, Draws, SampleSet, samples_of
from lstr.pipelines.finetuning.scores import scorer
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.weights.folder import WeightsFolder, fit_name, open_weights, write_network, write_weights

MOST_READERS = 12


@dataclass(frozen=True)
class Training:
    """All that makes the networks what they are; `preset` has the streams to train, and the sizes of their images."""

    preset: Preset
    configs: Mapping[str, FinetuneConfig]
    initial: Mapping[str, Initial]
    labels: Labels
    videos: Mapping[str, Cached]
    """By id: all that any pair learns from or is chosen by"""
    pairs: list[Pair]
    folds: Mapping[str, int]
    seconds: float | None = None
    """Seconds that all may train for together; None for no bound"""

    def __post_init__(self) -> None:
        """Raises WeightsError where the pairs of folds could not be blind."""
        if self.folds:
            check_blind(self.initial, {i: video.sha256 for i, video in self.videos.items()})

    def seconds_of(self, stream: str) -> float | None:
        """Seconds that one network may train for, by what each costs."""
        if self.seconds is None:
            return None
        parts = self.preset.parts
        costs = {s: cost_of(parts[s].network).training * config.epochs for s, config in self.configs.items()}
        return self.seconds * costs[stream] / (sum(costs.values()) * len(self.pairs))

    def settings(self, device: str, ranks: Ranks = ALONE) -> dict:
        """The content of settings.json: what has to be the same for a run to go on, and where it was made."""
        streams = {
            stream: {**asdict(config), "init": self.initial[stream].sha256, **asdict(self.preset.parts[stream])}
            for stream, config in self.configs.items()
        }
        whole = self.pairs[0]
        videos = {
            i: described(self.labels.videos[i], v.sha256, "training" if i in whole.training else "validation")
            for i, v in sorted(self.videos.items())
        }
        recipe = {n: v for n, v in asdict(self.preset).items() if n not in STREAMS}
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
        streams = [stream for stream in reversed(STREAMS) if stream in training.configs]  # flow costs less, gives more
        for pair in training.pairs:
            for stream in streams:
                network = Network(folder, stream, pair.fold)
                if not ranks.from_first(network.is_finished):
                    yield from _train(training, network, pair, device, loaders, ranks)
        if ranks.first:
            _finish(training, folder, streams, settings, device)
        ranks.wait()
    yield Finished(open_weights(folder))


def _finish(training: Training, folder: Path, streams: list[str], settings: dict, device: str) -> None:
    """Align the networks of folds, describe all in the folder, and remove what only a resumed run needs."""
    blind = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    chunks = {video_id: video.chunks for video_id, video in training.videos.items()}
    for stream in streams if blind else ():
        align(folder, training.preset, stream, blind, chunks, device)
    results = {s: {pair.name: Network(folder, s, pair.fold).read_result() for pair in training.pairs} for s in streams}
    whole = training.pairs[0]
    details = {
        "validation": {i: training.videos[i].sha256 for i in whole.validation},
        "metrics": results,
        "config": {stream: asdict(config) for stream, config in training.configs.items()},
        "seconds": round(sum(result["seconds"] for of in results.values() for result in of.values()), 2),
        "versions": settings["made_by"]["versions"],
    }
    seen = {i: training.videos[i].sha256 for i in whole.training}
    write_weights(folder, training.preset, training.folds, seen, details, len(training.pairs) - 1, device=device)
    clear(folder)


def default_loaders(device: str, ranks: Ranks = ALONE) -> int:
    """Processes that read ahead for each that trains: on a CPU few, for the network needs the cores."""
    cores = (os.cpu_count() or 1) // ranks.size
    return max(1, cores // 4) if device == "cpu" else min(MOST_READERS, max(1, cores - 1))


def _train(
    training: Training, network: Network, pair: Pair, device: str, loaders: int, ranks: Ranks
) -> Iterator[Progress | Epoch]:
    """Train one network, or go on with it, and write its file."""
    stream, labels = network.stream, training.labels
    config, preset = training.configs[stream], training.preset.parts[stream]
    model = recogniser(stream, preset, len(labels.classes), config)
    begin_with(model, training.initial[stream], trainable_network(preset.network), config.seed)
    model.to(device=device).to(memory_format=torch.channels_last)
    seen = {**training.initial[stream].seen, **{i: training.videos[i].sha256 for i in pair.seen}}
    card = ModelCard(fit_name(network.folder), stream, preset.network, labels.classes, seen, None, pair.fold)

    augmentation = Augmentation(
        config.short_side,
        config.crop,
        mirror=config.mirror,
        directed=training.preset.algorithm != DIFFERENCE,
        colour=config.colour,
    )
    learnt = {i: training.videos[i].chunks for i in pair.training}
    samples = samples_of({i: (labels.videos[i], len(chunks)) for i, chunks in learnt.items()}, labels.classes)
    if all(labels.classes[sample.label] == BACKGROUND for sample in samples):
        raise LabelsError(
            f"No labelled action lies within the {len(learnt)} training videos.", "give times in seconds of each video."
        )
    data = SampleSet(samples, learnt, stream, config.segments, augmentation, config.seed)
    n_chunks = sum(len(chunks) for chunks in learnt.values())
    n_draws = config.draws or max(FEWEST_DRAWS, n_chunks // config.segments)
    draws = Draws(samples, config.balanced, config.seed, n_draws)
    loader = EpochLoader(data, draws, config.batch_size, config.epochs, loaders, ranks, torch.device(device))
    chosen_by = {i: training.videos[i].chunks for i in pair.validation}
    evaluate = scorer(labels, chosen_by, stream, augmentation, config.precision, loaders) if chosen_by else None

    seconds = training.seconds_of(stream)
    run = NetworkRun(State(network, card.to_json()), model, config, loader, evaluate, ranks, seconds)
    yield from train_network(run)
    if ranks.first:
        network.write_result(run.position)
        write_network(network.folder, model.state_dict(), replace(card, mAP=run.position.best))
        network.state_file.unlink(missing_ok=True)
    ranks.wait()
