"""Which windows a run has: background cut to the most frequent action, and a few of each class (TOAD)."""

from collections import Counter

import numpy as np
import pytest

from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.sampling import draw_windows, epoch_steps, ignored_class

CLASSES = ("Background", "run", "jump", "Ambiguous")
NOTHING, RUN, JUMP, AMBIGUOUS = range(4)


def labelled(*columns, id="v"):
    """A video whose chunks each have the classes of a tuple."""
    truth = np.zeros((len(columns), 4), np.uint8)
    for chunk, on in enumerate(columns):
        truth[chunk, list(on)] = 1
    return LabelledVideo(
        id, TwoStreamArray(np.zeros((len(columns), 3), np.float32), np.zeros((len(columns), 0))), truth
    )


VIDEOS = [
    labelled(*[(NOTHING,)] * 30, *[(RUN,)] * 8, *[(AMBIGUOUS,)] * 5, *[(RUN, AMBIGUOUS)] * 2, *[(NOTHING,)] * 15),
    labelled(*[(JUMP,)] * 4, *[(RUN, JUMP)] * 3, (), (), *[(NOTHING,)] * 21, id="w"),
]
N_WINDOWS = 60 + 30


def drawn_by(epoch, **train):
    model, config = resolve("toad-thumos14", {f"train.{name}": str(value) for name, value in train.items()}, (3, 0))
    return draw_windows(VIDEOS, model, config, epoch, ignored_class(CLASSES, config))


def counted(windows):
    return Counter(int((VIDEOS[v].targets[end] > 0).argmax()) for v, end in windows)


def test_background_is_cut_to_the_most_frequent_action():
    first, second = (drawn_by(epoch) for epoch in (0, 1))
    for windows in (first, second):
        assert counted(windows) == {NOTHING: 11, RUN: 11, JUMP: 4} and len(set(windows)) == 26
        assert all(VIDEOS[v].targets[end].any() and not VIDEOS[v].targets[end][AMBIGUOUS] for v, end in windows)
    assert first == drawn_by(0) and set(first) != set(second), "each epoch has other background"
    assert len(drawn_by(0, background="all")) == N_WINDOWS
    assert counted(drawn_by(0, ambiguous="class"))[AMBIGUOUS] == 5, "a class like any other then"


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_few_windows_of_each_class_are_repeated_to_the_length_of_an_epoch(k):
    epochs = [drawn_by(epoch, shots=k) for epoch in range(3)]
    assert all(len(windows) == 26 for windows in epochs), "as long as with all windows"
    assert all(set(windows) == set(epochs[0]) for windows in epochs), "the same few in every epoch"
    assert epochs[0] != epochs[1], "in another order"
    assert counted(set(epochs[0])) == {NOTHING: k, RUN: k, JUMP: min(k, 4)}
    times = Counter(epochs[0]).values()
    assert max(times) - min(times) <= 1
    assert set(epochs[0]) != set(drawn_by(0, shots=k, seed=7))


def test_an_epoch_has_as_many_steps_as_without():
    for shots in (0, 2):
        model, config = resolve("toad-thumos14", {"train.shots": str(shots), "train.batch_size": "4"}, (3, 0))
        assert epoch_steps(VIDEOS, model, config, ignore=AMBIGUOUS) == 7


def test_the_training_of_the_description():
    model, config = resolve("toad-4-shot", {}, (512, 0))
    assert (model.kind, model.work_length, model.d_model, model.l_enc, model.n_heads) == ("toad", 8, 512, 6, 8)
    assert (config.optimiser, config.lr, config.weight_decay, config.batch_size) == ("adamw", 5e-5, 0.2, 32)
    assert (config.epochs, config.warmup_epochs, config.schedule, config.shots) == (30, 5, "paper", 4)
    assert (config.windows, config.stride, config.background, config.seed) == ("every", 1, "cut", 1024)
    assert TrainConfig().background == "all" and TrainConfig().shots == 0
