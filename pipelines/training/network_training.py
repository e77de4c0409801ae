"""The training of one network: what it learns from, and its file at the end."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from lstr.errors import LabelsError
from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.streams import STREAMS, in_training_order
from lstr.extractors.weights.model_card import ModelCard
from lstr.files.content import keep_jsonl, write_json
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.pipelines.extraction.plan import cost_of
from lstr.pipelines.progress import Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training.folds import Pair
from lstr.pipelines.training.frame_cache import Cached
from lstr.pipelines.training.network_config import NetworksToTrain, trainable_network
from lstr.pipelines.training.network_run import NetworkRun
from lstr.pipelines.training.network_samples import SampleSet, samples_of, single_chunks
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.recogniser import begin_with, recogniser
from lstr.pipelines.training.run_folder import LOG, Epoch, NetworkFiles, NetworkPosition
from lstr.pipelines.weights.folder import fit_name, write_network


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
        """The content of settings.json: what has to be the same for a run to go on, and where it was made."""
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
        return json.loads(json.dumps(settings))  # lists for tuples, as the file has them


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


def train_network(job: NetworkJob, ranks: Ranks = ALONE) -> Iterator[Progress | Epoch]:
    """Train one network, or go on with it, and write its file.

    Yields Progress after each step, an Epoch after each epoch. Raises LabelsError where its videos show no action,
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
    run = NetworkRun(network, card.to_json(), model, data, job.loaders, ranks, chosen_by, labels, job.seconds)
    yield from run.train()
    if ranks.first:
        position = run.position
        result = {"mAP": position.best_mAP, "epoch": position.best_epoch or position.epoch, "epochs": position.epoch}
        write_json(network.result_file, result | {"seconds": round(position.seconds, 2)})
        write_network(network.folder, model.state_dict(), replace(card, mAP=position.best_mAP))
        network.state_file.unlink(missing_ok=True)
    ranks.wait()


def forget_unsaved(network: NetworkFiles) -> None:
    """Take the epochs of a network that no saved state has out of the log of its folder."""
    done = 0
    if network.state_file.exists():
        content = torch.load(network.state_file, map_location="cpu", weights_only=True, mmap=True)
        done = NetworkPosition(**json.loads(content["progress"])).epoch
    own = (network.stream, network.fold)
    keep_jsonl(network.folder / LOG, lambda entry: (entry["stream"], entry["fold"]) != own or entry["epoch"] <= done)
