"""What videos without labels add to few with labels, and what a network learns of chunks besides: unlabelled.json.

    nice python benchmarks/unlabelled.py SHARED/data --work WORK [--sets urfall] [--seeds 1]

Three folds as in tuning.py, with the same small pictures; of the videos that a fold leaves, every third one has labels,
and the others serve without. `order`: a second head tells whether the pictures of a chunk come in their order or turned
round, for as many chunks more as a step has; of the videos with labels alone, or of all. `consistency`: what the moving
average of the network is sure of (at 0.9) in a chunk without a label is what the network shall say of it where contrast
is changed more and a box is grey (after FixMatch, Sohn et al. 2020, and the mean teacher, Tarvainen and Valpola 2017).
`told by the model`: `small`, trained on the videos with labels, says what the others show; chunks of which it is sure
(at 0.7) are labels for another `small`. `all labelled`: what the labels of the others would be worth. As `order` and
`consistency` see two pictures for one, labels alone are learnt from for twice as many steps too. One core.
"""

import argparse
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from finetuned import folds_of
from held_out import HeldOut, Scores
from network_trials import SIZE, STREAM, SYSTEMS, Fold, NetworkTrials, Prepare, as_it_is
from real_data import RESAMPLES, judge
from torch import Tensor, nn
from torch.nn import functional

from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.finetuning.blending import jittered
from lstr.pipelines.finetuning.recogniser import Recogniser
from lstr.pipelines.finetuning.samples import Sample, SampleSet
from lstr.pipelines.provenance import about_machine

SETS = ("ut_interaction", "urfall")
LABELLED = 3  # one in so many
SURE, SURE_MODEL = 0.9, 0.7
DECAY, WEIGHT = 0.98, 0.3
BASE = "labels alone"
TWICE = "labels alone, twice as long"
WAYS = (BASE, TWICE, "order, of the labelled", "order, of all", "consistency", "all labelled")
STRONG = 0.6  # share by which contrast is changed


class Others:
    """Batches of chunks whatever they show, without end."""

    def __init__(self, trials: NetworkTrials, ids: Sequence[str], like: SampleSet):
        chunks = {i: trials.cached[i].chunks for i in ids}
        samples = [Sample(i, at, at + 1, 0) for i, video in chunks.items() for at in range(len(video))]
        config = replace(like.config, balanced=0.0)
        self.data = SampleSet(samples, chunks, STREAM, config, directed=False)

    def batches(self) -> Iterator[Tensor]:
        """Images (N, 1, C, H, W) uint8."""
        epoch = 0
        while True:
            epoch += 1
            yield from (self.data.batch(keys)[0] for keys in self.data.epoch(epoch))


class OrderRecogniser(Recogniser):
    """Learns besides whether the three pictures of a chunk come in their order."""

    def __init__(self, model: Recogniser, others: Others):
        nn.Module.__init__(self)
        self.__dict__.update(model.__dict__)
        self.cls_head.order = nn.Linear(model.cls_head.fc_cls.in_features, 2)  # and is trained at its rate
        self._others = others.batches()

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss, with that of the order."""
        more = next(self._others)
        turned = torch.rand(len(more)) < 0.5
        # differences stand for −127.5 to 127.5: turned round in time each changes its sign
        more = torch.where(turned[:, None, None, None, None], 255 - more.flip(2), more)
        more = self.scaled(jittered(more, self.config.contrast, self.config.brightness))
        maps = self.backbone(torch.cat([images, more]).flatten(0, 1))
        own, others = maps.split([len(images), len(more)])
        loss = functional.cross_entropy(self.cls_head(own, 1), labels)
        return loss + WEIGHT * functional.cross_entropy(self.cls_head.order(others.mean((2, 3))), turned.long())


class ConsistentRecogniser(Recogniser):
    """Learns besides to say of changed chunks what its moving average says of them as they are."""

    def __init__(self, model: Recogniser, others: Others):
        nn.Module.__init__(self)
        self.__dict__.update(model.__dict__)
        self.__dict__["average"] = copy.deepcopy(model).eval()  # no part of what is trained
        self._others = others.batches()

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss, with that of the others of which the average is sure."""
        more = next(self._others)
        with torch.no_grad():
            self._follow()
            said = self.average.scores(self.scaled(more)).softmax(1)
        strong = with_box(jittered(more, STRONG, self.config.brightness))
        maps = self.backbone(torch.cat([images, self.scaled(strong)]).flatten(0, 1))
        own, others = maps.split([len(images), len(more)])
        loss = functional.cross_entropy(self.cls_head(own, 1), labels)
        sure, best = said.max(1)
        each = functional.cross_entropy(self.cls_head(others, 1), best, reduction="none")
        return loss + (each * (sure > SURE)).mean()

    def _follow(self) -> None:
        own = self.state_dict()
        for name, tensor in self.average.state_dict().items():
            if tensor.is_floating_point():
                tensor.lerp_(own[name], 1 - DECAY)


def with_box(images: Tensor) -> Tensor:
    """Images (N, 1, C, H, W) of bytes, a box of half of each side without anything in each."""
    height, width = images.shape[-2:]
    images = images.clone()
    for image in images:
        y, x = int(torch.randint(height // 2, ())), int(torch.randint(width // 2, ()))
        image[..., y : y + height // 2, x : x + width // 2] = 127.5
    return images


class Told(HeldOut):
    """`small`, and another that learns besides of what the first is sure of."""

    def twice(self, seed: int, training: Sequence[str], others: Sequence[str], testing: Sequence[str]) -> Scores:
        """Scores of the testing videos by the second."""
        said = self.scores({}, seed, training, others)
        for video_id, scores in said.items():
            sure = scores.max(1) >= SURE_MODEL
            shown = np.eye(scores.shape[1], dtype=np.uint8)[scores.argmax(1)] * sure[:, None].astype(np.uint8)
            self.videos[video_id] = replace(self.videos[video_id], targets=shown)
        return self.scores({}, seed, [*training, *others], testing)


def adds(kind: type[Recogniser], trials: NetworkTrials, ids: Sequence[str]) -> Prepare:
    """What makes a recogniser one that learns besides from chunks of some videos."""
    return lambda model, data: kind(model, Others(trials, ids, data))


class Few:
    """Scores of one set's videos by each way to learn, kept in a folder."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.trials = NetworkTrials(options.data / name, options.work / name, options.cache)
        self.work, self.epochs = options.work / name, options.epochs
        self.folds = folds_of(sorted(self.trials.cached))

    def network(self, way: str, fold: Fold, others: Sequence[str], seed: int) -> Recogniser:
        """The network that learns in a way."""
        epochs = self.epochs * (2 if way == TWICE else 1)
        kind, ids = {
            "order, of the labelled": (OrderRecogniser, fold.training),
            "order, of all": (OrderRecogniser, [*fold.training, *others]),
            "consistency": (ConsistentRecogniser, [*fold.training, *others]),
        }.get(way, (None, ()))
        prepare = adds(kind, self.trials, ids) if kind else as_it_is
        return self.trials.train(self.trials.config({"seed": str(seed), "epochs": str(epochs)}), fold, prepare)

    def scores(self, way: str, number: int, seed: int) -> dict[str, Scores]:
        """Scores of a fold's videos by both systems; computed where the folder lacks them."""
        kept = self.work / f"fold_{number}" / way.replace(" ", "_") / f"seed_{seed}.npz"
        testing = self.folds[number]
        left = [i for i in sorted(self.trials.cached) if i not in testing]
        labelled = left if way == "all labelled" else left[::LABELLED]
        fold, others = Fold(labelled, testing), [i for i in left if i not in labelled]
        if not kept.exists():
            model = self.network(way, fold, others, seed)
            found = self.trials.scores(model, fold, seed)
            if way == BASE:  # the same network
                told = self.trials.held_out(self.trials.features(model), Told)
                found["told by the model"] = told.twice(seed, fold.training, others, testing)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as temporary, temporary.open("wb") as file:
                np.savez(file, **{f"{system} {i}": rows for system, of in found.items() for i, rows in of.items()})
        with np.load(kept) as file:
            systems = [*SYSTEMS, *(["told by the model"] if way == BASE else [])]
            return {system: {i: file[f"{system} {i}"] for i in testing} for system in systems}

    def judged(self, seeds: int) -> dict[str, dict]:
        """{way: {system: mAP, its interval, how far ahead of labels alone}}."""
        runs: dict[str, dict[str, list[Scores]]] = {}
        known = self.trials.known()
        for seed in range(seeds):
            for way in WAYS:
                for number in range(len(self.folds)):
                    for system, found in self.scores(way, number, seed).items():
                        name = way if system in SYSTEMS else system
                        of = runs.setdefault(name, {}).setdefault(system if system in SYSTEMS else "small", [])
                        of += [{}] if len(of) == seed else []
                        of[seed] |= found
                told = [f"{s} {known.per_frame(of[seed])['mAP']:.3f}" for s, of in runs[way].items()]
                print(self.work.name, f"seed {seed}", way, *told, flush=True)
        rows: dict[str, dict] = {}
        for way, systems in runs.items():
            rows[way] = {"seeds": seeds}
            for system, of in systems.items():
                both = {BASE: runs[BASE][system], way: of}
                rows[way][system] = judge(known, both, BASE)[way]
        return rows


def main() -> None:
    """Measure and write the record, in which the other set stays."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for scores")
    parser.add_argument("--cache", type=Path, help="chunk cache; WORK/chunks by default")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8, help="of what does not learn twice as long")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("unlabelled.json"))
    options = parser.parse_args()
    options.cache = options.cache or options.work / "chunks"
    torch.set_num_threads(1)
    for name in options.sets:
        rows = Few(name, options).judged(options.seeds)
        record = json.loads(options.output.read_text()) if options.output.exists() else {}
        about = {"stream": STREAM, "size": SIZE, "labelled": f"one of {LABELLED}"}
        write_json(options.output, record | {name: rows} | about | {"resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
