"""lap-like, tfn-like and conv-deconv: what their losses take from the labels, and that no score knows the future."""

import torch
import torch.nn.functional as F

from lstr.batch import predict
from lstr.models.convolutional import same_run
from lstr.models.trn import REACH, TENTHS, tenths_of
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.window_samples import make_targets
from lstr.windows.windows import Supervision, gather, join, loss_of
from tests.support.tiny_models import tiny, video

LABELS = [0] * 12 + [1] * 10 + [2] * 20 + [0] * 18


def supervised(model, ends=(3, 20, 30)):
    """Windows of one video of 60 chunks, with its labels."""
    rows, labels = video(60).numpy(), torch.eye(5)[torch.tensor(LABELS)].numpy()
    one = LabelledVideo("v", TwoStreamArray(rows[:, :5], rows[:, 5:]), labels)
    windows = join([gather(rows, [end], model.config) for end in ends])
    return windows, Supervision(*make_targets([one], [(0, end) for end in ends], model.config, model.outputs()))


def test_tenths_are_of_actions_whose_length_is_known():
    labels = torch.eye(3)[torch.tensor([[2] * 3 + [0] + [1] * 5 + [2] * 10 + [0] * 2 + [1] * 2])]
    exists = torch.ones(labels.shape[:2], dtype=torch.bool)
    tenths = [-1] * 3 + [10] + [0, 2, 4, 6, 8] + list(range(10)) + [10] * 2 + [-1] * 2
    assert tenths_of(labels, exists).tolist() == [tenths]
    exists[0, :2] = exists[0, -1:] = False  # the video has no such chunks: what is beside them begins and ends there
    assert tenths_of(labels, exists).tolist() == [[-1, -1, 0, *tenths[3:-2], 0, -1]]
    ambiguous = torch.cat([labels, (torch.arange(labels.shape[1]) == 6).float()[None, :, None]], dim=2)
    found = tenths_of(ambiguous, exists, 3)[0, 4:9]
    assert found.tolist() == [0, 5, 0, 0, 5], "an ambiguous chunk ends a run"


def test_lap_learns_how_far_actions_have_come():
    model = tiny(kind="lap-like", anticipation=2)
    windows, supervision = supervised(model)
    logits, progress = model(windows)
    assert supervision.targets.shape[1] == logits.shape[1] + 2 * REACH + model.config.work_length
    known = [LABELS[i] and (i - (12 if i < 22 else 22)) * TENTHS // (10 if i < 22 else 20) for i in range(60)]
    known = [tenth if LABELS[i] else TENTHS for i, tenth in enumerate(known)]
    W, wanted, rows = model.config.work_length, [], []
    for b, end in enumerate((3, 20, 30)):
        start = max(0, end - W + 1)
        for slot in range(min(W, end + 1)):
            wanted.append(known[start + slot])
            rows.append(progress[b, slot])
    expected = F.cross_entropy(torch.stack(rows), torch.tensor(wanted))
    loss = model.loss((logits, progress), windows, supervision)
    torch.testing.assert_close(loss, loss_of(logits, model.outputs(), supervision) + expected)


def test_lap_weighs_what_it_takes_on_by_progress():
    """Before it has learned anything all states weigh the same; afterwards what the head says chooses."""
    model, features = tiny(kind="lap-like", anticipation=2), video(12)
    before = predict(model, features)
    with torch.no_grad():
        model.progress.bias[3] += 4
        torch.testing.assert_close(predict(model, features), before, atol=1e-6, rtol=0)
        model.ranges[3, 0] += 4
    assert (predict(model, features)[1:] - before[1:]).abs().amax(dim=1).min() > 1e-5


def test_a_run_is_unbroken_back_from_the_newest():
    labels = torch.eye(4)[torch.tensor([[1, 0, 1, 3, 1, 1, 0, 0]])]
    present = torch.arange(8)[None] < 6
    assert same_run(labels, labels[:, 5], present)[0].tolist() == [False] * 4 + [True] * 2 + [False] * 2
    through = [False, False, True, False, True, True, False, False]
    assert same_run(labels, labels[:, 5], present, 3)[0].tolist() == through


def test_tfn_learns_which_chunks_belong_to_the_newest():
    model = tiny(kind="tfn-like")
    windows, supervision = supervised(model, (3, 24))
    logits, relevance = model(windows)
    wanted = torch.tensor([[1.0] * 4 + [0.0] * 2, [0.0] * 3 + [1.0] * 3])
    each = F.binary_cross_entropy_with_logits(relevance, wanted, reduction="none")
    expected = (each[0, :4].mean() + each[1].mean()) / 2
    newest = F.cross_entropy(logits[:, 0], torch.tensor([0, 2]))
    torch.testing.assert_close(model.loss((logits, relevance), windows, supervision), newest + expected)
