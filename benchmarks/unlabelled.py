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

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from held_out import HeldOut, Scores
from network_trials import STILL, STREAM, Fold, NetworkTrials, Prepare, Systems, as_it_is, config_of, measure, parser_of
from torch import Tensor, nn
from torch.nn import functional

from lstr.pipelines.finetuning.blending import jittered
from lstr.pipelines.finetuning.recogniser import Recogniser
from lstr.pipelines.finetuning.samples import Sample, SampleSet

LABELLED = 3  # one in so many
SURE, SURE_MODEL = 0.9, 0.7
DECAY, WEIGHT = 0.98, 0.3
BASE = "labels alone"
TOLD = "told by the model"
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


def network(trials: NetworkTrials, way: str, fold: Fold, others: Sequence[str], seed: int, epochs: int) -> Recogniser:
    """The network that learns in a way."""
    kind, ids = {
        "order, of the labelled": (OrderRecogniser, fold.training),
        "order, of all": (OrderRecogniser, [*fold.training, *others]),
        "consistency": (ConsistentRecogniser, [*fold.training, *others]),
    }.get(way, (None, ()))
    config = config_of({"seed": str(seed), **STILL, "epochs": str(epochs * (2 if way == TWICE else 1))})
    return trials.train(config, fold, adds(kind, trials, ids) if kind else as_it_is)


def scores(trials: NetworkTrials, epochs: int, way: str, number: int, seed: int) -> Systems:
    """Scores of a fold's videos by a way to learn; those of labels alone with what is told by its model."""
    left = trials.left(number)
    labelled = left if way == "all labelled" else left[::LABELLED]
    fold, others = Fold(labelled, trials.folds[number]), [i for i in left if i not in labelled]
    model = network(trials, way, fold, others, seed, epochs)
    features = trials.features(model)
    found = trials.scores(model, features, fold, seed)
    if way == BASE:
        told = trials.held_out(features, Told)
        found[TOLD] = told.twice(seed, fold.training, others, fold.testing)
    return found


def judged(trials: NetworkTrials, seeds: int, epochs: int) -> dict[str, dict]:
    """{way: {system: mAP, its interval, how far ahead of labels alone}}."""

    def kept(way: str, number: int, seed: int) -> Systems:
        return trials.kept(way, number, seed, partial(scores, trials, epochs, way, number, seed))

    runs = trials.pooled(WAYS, seeds, kept)
    told = {"small": runs[BASE].pop(TOLD)}
    runs = {BASE: runs[BASE], TOLD: told, **runs}
    return {way: {"seeds": seeds, **trials.judged(runs, way, BASE)} for way in runs}


def main() -> None:
    """Measure and write the record."""
    parser = parser_of(__doc__, Path(__file__).with_name("unlabelled.json"))
    parser.add_argument("--epochs", type=int, default=8, help="of what does not learn twice as long")
    options = parser.parse_args()
    labelled = f"one of {LABELLED}"
    measure(options, lambda trials: judged(trials, options.seeds, options.epochs), labelled=labelled)


if __name__ == "__main__":
    main()
