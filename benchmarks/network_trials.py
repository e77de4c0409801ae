"""A network that some videos of a set train from ImageNet weights, and how well others are scored by it.

All in one process and on one core, so that two sets are measured at the same time on two. Pictures come out of the
chunk cache, as for `lstr finetune`, and features are the mean of a picture and its mirror image, as for `lstr extract`.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from finetuned import folds_of
from held_out import HeldOut, Scores
from real_data import RESAMPLES, judge
from torch import Tensor

from lstr.extractors.backbones.networks import known_network
from lstr.extractors.presets import DIFFERENCE
from lstr.extractors.weights.model_card import ModelCard
from lstr.labels.label_set import Labels, read_labels, targets
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.extraction.chunk_cache import ChunkCache
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.files.videos import find_sources
from lstr.pipelines.finetuning.cached_videos import Cached, chunks_of, fill, look_at
from lstr.pipelines.finetuning.config import FinetuneConfig, resolve
from lstr.pipelines.finetuning.initial_weights import initial_weights
from lstr.pipelines.finetuning.network_run import NetworkRun
from lstr.pipelines.finetuning.recogniser import Recogniser, begin_with, recogniser
from lstr.pipelines.finetuning.run_folder import SETTINGS, NetworkFiles
from lstr.pipelines.finetuning.samples import SampleSet, samples_of, single_chunks
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.ranks import ALONE

STREAM = "difference"
SIZE = (64, 85)
"""Height and width of what the network sees: a step costs a third of what the recipes' 112 × 149 pixels cost"""
SMALL = DIFFERENCE.having({STREAM: replace(DIFFERENCE.parts[STREAM], size=SIZE)})
STILL = {"shake": "0", "zoom": "1"}
"""Pictures of one camera, as they are: what settings were compared on before pictures shook, and were cut in sizes"""
SETS = ("ut_interaction", "urfall")
Systems = dict[str, Scores]
"""Scores by what gives them: the network's own `head`, and `small` on its features"""
Held = TypeVar("Held", bound=HeldOut)
SCORED = 64  # pictures at a time
Pictures = Callable[[int], np.ndarray]
"""What a video shows of each chunk, (H, W, C)"""
Prepare = Callable[[Recogniser, SampleSet], Recogniser]
"""What makes another recogniser of one, by the samples that it is to learn from; the head stays its own"""


def config_of(settings: Mapping[str, str]) -> FinetuneConfig:
    """The settings of a training, by what differs from the defaults."""
    return resolve(SMALL, {STREAM: "imagenet"}, settings, "cpu")[1][STREAM]


def as_it_is(model: Recogniser, data: SampleSet) -> Recogniser:
    """Nothing besides the labels is learnt from."""
    return model


@dataclass(frozen=True)
class Fold:
    """Which videos do what, by their ids."""

    training: Sequence[str]
    testing: Sequence[str]
    validation: Sequence[str] = ()
    """They choose the epoch"""


class NetworkTrials:
    """The videos of a set in the chunk cache, for networks that learn from some of them, in three folds."""

    def __init__(self, source: Path, work: Path, cache: Path):
        self.labels: Labels = read_labels(source / "labels.json")
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        found = {i: place for i, place in find_sources([str(source / "videos")]).items() if i in self.labels.videos}
        chunks, failed = ChunkCache(cache, chunks_of(SMALL)), FailureLog(work)
        sound = _result(look_at(found, chunks, failed))
        self.cached: Mapping[str, Cached] = _result(fill(sound, chunks, None, failed))
        self.initial = initial_weights(SMALL, "imagenet", {})
        self.folds = folds_of(sorted(self.cached))

    def left(self, number: int) -> list[str]:
        """The videos that are not of a fold."""
        return [i for i in sorted(self.cached) if i not in self.folds[number]]

    def samples(self, ids: Sequence[str], config: FinetuneConfig) -> SampleSet:
        """What is learnt from videos with labels."""
        learnt = {i: self.cached[i].chunks for i in ids}
        whole = samples_of(
            {i: (self.labels.videos[i], len(chunks)) for i, chunks in learnt.items()}, self.labels.classes
        )
        return SampleSet(single_chunks(whole) if config.samples == "chunks" else whole, learnt, STREAM, config, False)

    def train(self, config: FinetuneConfig, fold: Fold, prepare: Prepare = as_it_is) -> Recogniser:
        """A network that the training videos have trained, with its head."""
        part = SMALL.parts[STREAM]
        data = self.samples(fold.training, config)
        model = recogniser(STREAM, part, len(self.labels.classes), config)
        entry = known_network(part.network)
        assert entry is not None
        begin_with(model, self.initial[STREAM], entry, config.seed)
        model = prepare(model, data).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        folder = self.work / "training"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "training").mkdir(parents=True)
        (folder / SETTINGS).touch()  # a run stops where its folder is gone
        card = ModelCard("trial", STREAM, part.network, self.labels.classes, {}, None, None)
        chosen_by = {i: self.cached[i].chunks for i in fold.validation}
        network = NetworkFiles(folder, STREAM, None)
        run = NetworkRun(network, card.to_json(), model, data, 0, ALONE, chosen_by, self.labels)
        for _ in run.train():
            pass
        shutil.rmtree(folder)
        return model

    @torch.inference_mode()
    def features(self, model: Recogniser, shown: Mapping[str, Pictures] | None = None) -> dict[str, np.ndarray]:
        """The features (L, D) of videos, of a picture and its mirror image; of all as they are, or of those `shown`."""
        view, found = model.config.view, {}
        of_all = {i: partial(one.chunks.picture, stream=STREAM) for i, one in self.cached.items()}
        for video_id, picture in (shown or of_all).items():
            rows, length = [], len(self.cached[video_id].chunks)
            for at in range(0, length, SCORED):
                some = range(at, min(at + SCORED, length))
                images = np.stack([view.of(view.fitted(picture(chunk))) for chunk in some])
                pixels = model.scaled(torch.from_numpy(images.transpose(0, 1, 4, 2, 3).copy())).flatten(0, 1)
                both = torch.cat([pixels, pixels.flip(-1)]).contiguous(memory_format=torch.channels_last)
                rows.append(_pooled(model.backbone(both)).unflatten(0, (2, -1)).mean(0).numpy())
            found[video_id] = np.concatenate(rows)
        return found

    def held_out(self, features: Mapping[str, np.ndarray], kind: type[Held] = HeldOut) -> Held:
        """What models learn from, and are scored on."""
        folder = self.work / "features"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "rgb").mkdir(parents=True)
        for video_id, rows in features.items():
            (path := folder / "rgb" / f"{video_id}.npy").parent.mkdir(parents=True, exist_ok=True)
            np.save(path, rows)
        kept = self.work / "small"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        return kind(open_features(folder), self.labels, "small", kept)

    def scores(self, model: Recogniser, features: Mapping[str, np.ndarray], fold: Fold, seed: int) -> Systems:
        """What both systems say of the testing videos, by the features that the network makes."""
        head = model.cls_head.fc_cls
        weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
        alone = {i: _shares(features[i] @ weight.T + bias) for i in fold.testing}
        learns = [*fold.training, *fold.validation]
        return {"head": alone, "small": self.held_out(features).scores({}, seed, learns, fold.testing)}

    def kept(self, name: str, number: int, seed: int, make: Callable[[], Systems]) -> Systems:
        """Scores of a fold's videos, as they were kept; made where they were not."""
        path = self.work / f"fold_{number}" / name.replace(" ", "_") / f"seed_{seed}.npz"
        if not path.exists():
            made = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, **{f"{system} {i}": rows for system, of in made.items() for i, rows in of.items()})
        found: Systems = {}
        with np.load(path) as file:
            for key in file.files:
                system, _, video_id = key.rpartition(" ")
                found.setdefault(system, {})[video_id] = file[key]
        return found

    def pooled(
        self, names: Iterable[str], seeds: int, scores: Callable[[str, int, int], Systems]
    ) -> dict[str, dict[str, list[Scores]]]:
        """Scores of all videos, {name: {system: those of each seed}}, from `scores(name, fold, seed)`."""
        names, known = list(names), self.known()
        runs: dict[str, dict[str, list[Scores]]] = {name: {} for name in names}
        for seed in range(seeds):
            for name in names:
                whole: Systems = {}
                for number in range(len(self.folds)):
                    for system, found in scores(name, number, seed).items():
                        whole.setdefault(system, {}).update(found)
                told = [f"{system} {known.per_frame(of)['mAP']:.3f}" for system, of in whole.items()]
                print(self.work.name, f"seed {seed}", name, *told, flush=True)
                for system, of in whole.items():
                    runs[name].setdefault(system, []).append(of)
        return runs

    def judged(self, runs: Mapping[str, Mapping[str, list[Scores]]], name: str, other: str) -> dict[str, dict]:
        """{system: mAP of a name, its interval, how far ahead of another it is} of pooled scores."""
        known = self.known()
        return {
            system: judge(known, {other: runs[other][system], name: of}, other)[name]
            for system, of in runs[name].items()
        }

    def known(self) -> "Known":
        """What the videos show, for the metrics of scores whose features are gone."""
        return Known(self.labels, {i: len(cached.chunks) for i, cached in self.cached.items()})


def parser_of(doc: str, output: Path) -> argparse.ArgumentParser:
    """What every benchmark of trials takes; `output` is its record."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for scores")
    parser.add_argument("--cache", type=Path, help="chunk cache; WORK/chunks by default")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=output)
    return parser


def measure(options: argparse.Namespace, measured: Callable[[NetworkTrials], dict[str, Any]], **about: Any) -> None:
    """Measure each set on one core, and write the record, in which rows and sets of before stay."""
    torch.set_num_threads(1)
    for name in options.sets:
        rows = measured(
            NetworkTrials(options.data / name, options.work / name, options.cache or options.work / "chunks")
        )
        record = json.loads(options.output.read_text()) if options.output.exists() else {}
        record[name] = record.get(name, {}) | rows
        of_all = {"stream": STREAM, "size": SIZE, **about, "resamples": RESAMPLES}
        write_json(options.output, record | of_all | about_machine())


class Known(HeldOut):
    """What videos show, for the metrics of scores."""

    def __init__(self, labels: Labels, lengths: Mapping[str, int]):
        self.labels, self.videos = labels, {}
        for video_id, n in lengths.items():
            nothing = TwoStreamArray(np.zeros((n, 0), np.float32), np.zeros((n, 0), np.float32))
            shown = targets(labels.videos[video_id], labels.classes, n)
            self.videos[video_id] = LabelledVideo(video_id, nothing, shown)


def _pooled(maps: Tensor) -> Tensor:
    """(N, D, h, w) → (N, D)."""
    return maps.float().mean((2, 3))


def _shares(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _result(events: Iterator):
    """What a generator returns."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value
