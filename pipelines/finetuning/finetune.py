"""Labelled videos to the weights of the two TSN networks, resumable after any epoch."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from extractors.errors import WeightsError
from extractors.networks.model_card import ModelCard, is_weights_folder
from extractors.presets import Preset
from extractors.recipe import STREAMS
from lstr.errors import LabelsError
from lstr.labels import BACKGROUND, Labels
from pipelines.finetuning.cached_videos import Cached, SoundVideo
from pipelines.finetuning.config import FEWEST_DRAWS, FinetuneConfig
from pipelines.finetuning.fold_alignment import align
from pipelines.finetuning.folds import Pair
from pipelines.finetuning.initial_weights import Initial
from pipelines.finetuning.recogniser import begin_with, recogniser
from pipelines.finetuning.run_folder import (
    EpochLog,
    begin,
    clear,
    described,
    is_finished,
    read_result,
    state_file,
    write_result,
)
from pipelines.finetuning.runner import Epoch, EpochLoader, State, train_recogniser
from pipelines.finetuning.samples import Augmentation, Draws, SampleSet, samples_of
from pipelines.finetuning.scores import scorer
from pipelines.networks.weights_folder import WeightsFolder, fit_name, open_weights, write_network, write_weights
from pipelines.provenance import provenance

MOST_READERS = 12
Say = Callable[[str, int | None, Epoch], None]
"""Called with stream, fold and the epoch that ended."""
Step = Callable[[str, int | None, int, int], None]
"""Called with stream, fold, the steps done and in all."""


@dataclass(frozen=True)
class Training:
    """All that makes the networks what they are; `preset` has the streams to train, and the sizes of their images."""

    preset: Preset
    configs: Mapping[str, FinetuneConfig]
    initial: Mapping[str, Initial]
    labels: Labels
    videos: Mapping[str, Cached]
    """By id: all that any pair learns from or is chosen by."""
    pairs: list[Pair]
    folds: Mapping[str, int]

    def __post_init__(self) -> None:
        """Raises WeightsError where the pairs of folds could not be blind."""
        if self.folds:
            check_blind(self.initial, self.videos)

    def settings(self, device: str) -> dict:
        """What settings.json says, and what has to be the same for a run to go on."""
        streams = {
            stream: {**asdict(config), "init": self.initial[stream].sha256, **asdict(self.preset.parts[stream])}
            for stream, config in self.configs.items()
        }
        whole = self.pairs[0]
        videos = {
            i: described(self.labels.videos[i], v.sha256, "training" if i in whole.training else "validation")
            for i, v in sorted(self.videos.items())
        }
        chunks = {n: v for n, v in asdict(self.preset).items() if n not in STREAMS}
        settings = {"streams": streams, "recipe": chunks, "folds": len(self.pairs) - 1}
        settings |= {"classes": self.labels.classes, "videos": videos, "made_by": provenance(device, 1)}
        return json.loads(json.dumps(settings))  # lists for tuples, as the file has them


def check_blind(initial: Mapping[str, Initial], videos: Mapping[str, Cached | SoundVideo]) -> None:
    """Raises WeightsError where first weights have seen some of the videos, so that no pair of folds would be blind."""
    for stream, begins in initial.items():
        known = {*begins.seen, *begins.seen.values()}
        seen = [i for i, video in videos.items() if {i, video.sha256} & known]
        if seen:
            raise WeightsError(
                f"The first weights of the {stream} network have seen {len(seen)} of these videos, first {seen[0]!r}: "
                "no pair would be without it.",
                "begin with other weights, or leave out --folds.",
            )


def finetune(
    training: Training, folder: Path, device: str, resume: bool, readers: int | None, say: Say, step: Step
) -> WeightsFolder:
    """Train each network that is not finished, and make `folder` a weights folder.

    Raises CheckpointError where a run is in the way or another one, LstrError when a loss is not finite, OutputError.
    """
    settings = training.settings(device)
    begin(folder, settings, resume)
    if is_weights_folder(folder):
        return open_weights(folder)
    readers = default_readers(device) if readers is None else readers
    streams = [stream for stream in reversed(STREAMS) if stream in training.configs]  # flow costs less and gives more
    for pair in training.pairs:
        for stream in streams:
            if not is_finished(folder, stream, pair.fold):
                _train(training, stream, pair, folder, device, readers, say, step)
    blind = {pair.fold: pair.seen for pair in training.pairs if pair.fold}
    chunks = {video_id: video.chunks for video_id, video in training.videos.items()}
    for stream in streams if blind else ():
        align(folder, training.preset, stream, blind, chunks, device)
    results = {s: {pair.name: read_result(folder, s, pair.fold) for pair in training.pairs} for s in streams}
    whole = training.pairs[0]
    details = {
        "validation": {i: training.videos[i].sha256 for i in whole.validation},
        "metrics": results,
        "config": {stream: asdict(config) for stream, config in training.configs.items()},
        "seconds": round(sum(result["seconds"] for of in results.values() for result in of.values()), 2),
        "versions": settings["made_by"]["versions"],
    }
    seen = {i: training.videos[i].sha256 for i in whole.training}
    weights = write_weights(
        folder, training.preset, training.folds, seen, details, len(training.pairs) - 1, device=device
    )
    clear(folder)
    return weights


def default_readers(device: str) -> int:
    """Processes that read ahead: on a CPU few, for the network needs the cores."""
    cores = os.cpu_count() or 1
    return max(1, cores // 4) if device == "cpu" else min(MOST_READERS, max(1, cores - 1))


def _train(
    training: Training, stream: str, pair: Pair, folder: Path, device: str, readers: int, say: Say, step: Step
) -> None:
    """Train one network, or go on with it, and write its file."""
    config, preset, labels = training.configs[stream], training.preset.parts[stream], training.labels
    model = recogniser(stream, preset, len(labels.classes), config)
    begin_with(model, training.initial[stream], preset.network, config.seed)
    model.to(device=device, memory_format=torch.channels_last)
    seen = {**training.initial[stream].seen, **{i: training.videos[i].sha256 for i in pair.seen}}
    card = ModelCard(fit_name(folder), stream, preset.network, labels.classes, seen, None, pair.fold)
    state = State(state_file(folder, stream, pair.fold), card.to_json())
    log = EpochLog(folder, stream, pair.fold, state.saved_epoch)

    def tell(epoch: Epoch) -> None:
        log.write(epoch)
        say(stream, pair.fold, epoch)

    augmentation = Augmentation(config.short_side, config.crop, mirror=config.mirror, colour=config.colour)
    learnt = {i: training.videos[i].chunks for i in pair.training}
    samples = samples_of({i: (labels.videos[i], len(chunks)) for i, chunks in learnt.items()}, labels.classes)
    if all(labels.classes[sample.label] == BACKGROUND for sample in samples):
        raise LabelsError(
            f"No labelled action lies within the {len(learnt)} training videos.", "give times in seconds of each video."
        )
    data = SampleSet(samples, learnt, stream, config.segments, augmentation, config.seed)
    n_chunks = sum(len(chunks) for chunks in learnt.values())
    n_draws = config.draws or max(FEWEST_DRAWS, n_chunks // config.segments)
    loader = EpochLoader(data, Draws(samples, config.balanced, config.seed, n_draws), config, readers)
    chosen_by = {i: training.videos[i].chunks for i in pair.validation}
    evaluate = scorer(labels, chosen_by, stream, augmentation, config.precision, readers) if chosen_by else None
    progress = train_recogniser(
        model, loader, config, state, evaluate, tell, lambda done, total: step(stream, pair.fold, done, total)
    )
    write_result(folder, stream, pair.fold, progress)
    write_network(folder, model.state_dict(), replace(card, mAP=progress.best))
    state.path.unlink(missing_ok=True)
