"""The contract of every kind of model: streams, videos and windows agree, causality, steps, files and training."""

import msgspec
import numpy as np
import pytest
import torch

from lstr import batch, checkpoint, kinds, streaming
from lstr.errors import LstrError
from lstr.kinds import KINDS
from lstr.models.cuda_graphs import CapturedStep
from lstr.models.layers import keep
from lstr.windows.plans import CHANGES, Form, Joined, check_known, needed, of_two_shapes
from lstr.windows.windows import Supervision, gather, totals_of
from tests.support.documents import ROOT, block_with
from tests.support.tiny_models import (
    CASES,
    DESIGNS,
    check_streams,
    each_case,
    each_of,
    labelled_windows,
    perturb,
    run,
    scores_of,
    tiny,
    video,
)

CLASSES = ("Background", "a", "b", "c", "d")
# A state reaches further back than a window, so only the first window equals the whole video.
RECURRENT = ("rnn", "trn", "lap-like", "woad")
# Windows are not scored chunk by chunk; golden data has the outputs of the last five.
WITHOUT_CHUNK_OUTPUTS = ("average", "miniroad", "fats", "cmert", "mat", "colar")
# Unused parameters of the published CMeRT, and of OadTR, whose decoder begins with zeros.
UNUSED = ("final_query.weight", "decoder.0.self_attn.in_proj_weight")


def as_tensors(plan, device="cpu"):
    return {name: torch.from_numpy(values).to(device) for name, values in plan.items()}


def frozen_model(case):
    return perturb(tiny(**case)).requires_grad_(False)


@each_of([*CASES, *DESIGNS])
def test_a_stream_equals_the_whole_video(case):
    """Streams of one state start at different times, and each starts over on the memory of an earlier video."""
    expected = check_streams(frozen_model(case), [(1, 44), (5, 6, 34), (17, 28), (23, 22)])
    assert expected.diff(dim=1).abs().amax(dim=(2, 3)).min() > 1e-6, "constant scores would prove nothing"


@each_case
def test_the_future_never_changes_the_past(case):
    """Scores of a chunk, also of chunks ahead, stay the same to the bit for any later features and any batch size."""
    model, features, cut = frozen_model(case), video(60), 33
    other = torch.cat([features[:cut], 10 * video(60 - cut, 1)])
    a, b = batch.predict_ahead(model, features), batch.predict_ahead(model, other)
    assert a.shape == (60, 1 + model.config.n_ahead, 5) and a.dtype == torch.float32
    assert torch.equal(a[:cut], b[:cut])
    assert ((a[cut:] - b[cut:]).abs().amax(dim=(1, 2)) > 1e-5).all()
    torch.testing.assert_close(a.sum(dim=-1), torch.ones(a.shape[:2]))
    assert torch.equal(batch.predict(model, features), a[:, 0])
    for length in (0, 1, 5, 6, 7, cut):
        torch.testing.assert_close(batch.predict_ahead(model, features[:length], 7), a[:length], atol=1e-6, rtol=0)


WINDOWED = [
    case for case in [*CASES, *DESIGNS] if case.get("kind") not in WITHOUT_CHUNK_OUTPUTS and "decoder_from" not in case
]


@each_of(WINDOWED)
def test_a_window_scores_its_newest_chunk_as_the_whole_video_does(case):
    model, features = frozen_model(case), video(30)
    windows, outputs = gather(features, range(30), model.config), model.outputs()
    forwarded = model(windows)
    logits = forwarded if isinstance(forwarded, torch.Tensor) else forwarded[0]
    n, scored = logits.shape[1], []
    for row, present in zip(logits, windows.work_mask.sum(dim=1), strict=True):
        newest = np.isin(outputs.slots[:n], (-1, int(present) - 1))
        scored.append(row[newest & (outputs.ahead[:n] >= 0)])
    end = model.config.work_length if case.get("kind") in RECURRENT else 30
    expected = batch.predict_ahead(model, features, 16)[:end]
    torch.testing.assert_close(torch.stack(scored[:end]).softmax(-1), expected, atol=1e-5, rtol=0)


@each_case
def test_a_step_is_a_pure_function_of_tensors(case):
    """It does not change its inputs, and gives the same if they are donated, in tensors of the same shapes."""
    model = frozen_model(case)
    constants, pure, donated = model.constants(), model.begin(3), model.begin(3)
    for k in range(30):
        chunks, features = np.array([k, k % 19, k - 11 if k >= 11 else k]), video(3, k)
        numbers = model.planner(chunks)
        plan = as_tensors(numbers)
        inputs = [features, *pure.values(), *plan.values()]
        before = [tensor.clone() for tensor in inputs]
        logits, after = model.step(constants, pure, plan, features)
        assert all(map(torch.equal, inputs, before))
        assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in pure.items()}
        same_logits, rings = model.step(constants, donated, as_tensors(needed(numbers)), features, donate=True)
        keep(donated, rings)
        torch.testing.assert_close(same_logits, logits, atol=1e-5, rtol=0)
        pure = after


@each_case
def test_a_step_never_reads_the_values_of_a_tensor(case):
    """On a GPU that would wait and could not be captured; meta tensors have no values and raise."""
    model = frozen_model(case).to("meta")
    constants, tensors = model.constants(), model.begin(2)
    for k in (0, 3, 40, 41):
        plan = as_tensors(of_two_shapes(model.planner(np.array([k, k + 5]))), "meta")
        logits, _ = model.step(constants, tensors, plan, torch.zeros(2, 8, device="meta"))
        assert logits.shape == (2, 1 + model.config.n_ahead, 5)


@each_case
def test_a_captured_step_does_not_affect_streams_without_a_chunk(case, monkeypatch):
    """A graph steps every stream. Here the kernels run again instead of a replay, from the same memory."""
    monkeypatch.setattr(CapturedStep, "capture", lambda self, work: work)
    model, random = frozen_model(case), np.random.default_rng(0)
    plain, captured = streaming.create(model, 3), streaming.create(model, 3)
    captured.captured = CapturedStep(model, captured.constants, captured.tensors)
    assert set(captured.captured.replays) == ({False, True} if CHANGES in model.planner(np.array([0])) else {False})
    for k in range(34):
        for state in (plain, captured):
            streaming.reset(state, [1] if k == 12 else [])
        streams = sorted(random.choice(3, random.integers(1, 4), replace=False).tolist())
        rgb, flow = video(len(streams), k).split([5, 3], dim=1)
        expected = streaming.step_streams(model, plain, streams, rgb, flow)
        scores = streaming.step_streams(model, captured, streams, rgb, flow)
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    assert (plain.chunks == captured.chunks).all()


@pytest.mark.gpu
@each_case
def test_captured_steps_equal_the_cpu(case):
    model = frozen_model(case)
    features = torch.randn(2, 60, 8)
    expected = torch.stack([scores_of(model, video) for video in features], dim=1)
    model.to("cuda")
    state = streaming.create(model, 2)
    streaming.capture(model, state)
    torch.testing.assert_close(run(model, features.transpose(0, 1), state), expected, atol=1e-4, rtol=0)
    streaming.reset(state)
    for k in range(60):  # one stream after the other, as cameras do
        for stream in (1, 0):
            rows = features[stream, k, None]
            scores = streaming.step_streams(model, state, [stream], rows[:, :5], rows[:, 5:])
            torch.testing.assert_close(scores[0], expected[k, stream], atol=1e-4, rtol=0)


@each_case
def test_checkpoints_streams_and_plans_are_stored(case, tmp_path):
    """Saved streams of different lengths continue to the bit, with the weights of a checkpoint."""
    model, path = perturb(tiny(**case)), tmp_path / "a.stream"
    checkpoint.save(tmp_path / "best.pt", model, CLASSES, None, {})
    loaded = checkpoint.load(tmp_path / "best.pt")
    assert type(loaded.model) is type(model) and loaded.config == model.config == loaded.model.config
    assert not loaded.model.training and loaded.assumed == {}
    torch.testing.assert_close(dict(loaded.model.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    features = torch.stack([video(34, seed) for seed in range(2)], dim=1)
    state = streaming.create(model, 2)
    run(model, features[:20], state)
    streaming.reset(state, [1])
    run(model, features[20:25], state)
    streaming.save(path, state)
    restored = streaming.restore(path, loaded.model)
    assert restored.chunks.tolist() == [25, 5]
    assert torch.equal(run(loaded.model, features[25:], restored), run(model, features[25:], state))
    check_known(model.planner)
    assert msgspec.json.decode(msgspec.json.encode(model.planner), type=Form | Joined) == model.planner


# WOAD compares windows with each other, and RED draws labels.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("woad", "red")])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(kind):
    model = tiny(kind=kind)
    windows, known = labelled_windows(model, [9, 20, 30])
    totals = totals_of(known.targets, known.counts, model.outputs(), 3)

    def loss(at: slice, *of_batch) -> float:
        torch.manual_seed(5)  # FATS draws a length
        part = windows.map(lambda tensor: tensor[at])
        return model.loss(model(part), part, Supervision(known.targets[at], known.counts[at], 3, *of_batch)).item()

    parts = loss(slice(0, 2), totals, 3), loss(slice(2, 3), totals, 3)
    assert sum(parts) == pytest.approx(loss(slice(None)), rel=1e-5)


@each_of([case for case in CASES if case.get("kind") != "average"])
def test_a_training_step_reaches_every_parameter(case):
    model = perturb(tiny(**case)).train()
    windows, supervision = labelled_windows(model, [9, 20, 30])
    model.loss(model(windows), windows, supervision).backward()
    for name, parameter in model.named_parameters():
        if name not in UNUSED:
            assert parameter.grad.isfinite().all() and parameter.grad.any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_standardisation_moves_into_the_weights(kind):
    model, features = tiny(kind=kind), video(40)
    mean, std = torch.randn(8), torch.rand(8) + 0.5
    expected = batch.predict_ahead(model, (features - mean) / std)
    model.absorb(mean, std)
    scores = batch.predict_ahead(model, features)
    # until chunk 22 some kinds see rows of zeros before the first chunk of the video
    torch.testing.assert_close(scores[22:], expected[22:], atol=1e-5, rtol=0)


def test_the_new_kind_in_the_documentation_needs_a_single_class(monkeypatch, tmp_path):
    page = ROOT / "docs" / "how-to" / "python.md"
    (tmp_path / "mean_kind.py").write_text(block_with(page, "python", "class MeanConfig"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(kinds.OURS, "mean", "mean_kind:KIND")
    monkeypatch.setattr(kinds, "usable", kinds.usable.__wrapped__)
    monkeypatch.setattr(kinds, "presets", kinds.presets.__wrapped__)
    mean = tiny(kind="mean")
    assert mean.config.n_long == 0 and mean.config.n_ahead == 0
    test_a_stream_equals_the_whole_video({"kind": "mean"})
    test_checkpoints_streams_and_plans_are_stored({"kind": "mean"}, tmp_path)
    with pytest.raises(LstrError):
        streaming.capture(mean, streaming.create(mean))
    assert not streaming.can_capture(mean)
