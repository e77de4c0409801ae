"""CMeRT and MAT against their published evaluation and training, and streams that say the same as the whole video."""

import copy

import numpy as np
import pytest
import torch

from lstr import checkpoint, streaming
from lstr.batch import predict_ahead
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import change, configure, make_model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.window_samples import draw_windows, make_targets
from lstr.windows import indices as memory
from lstr.windows.windows import Supervision, gather
from tests.support.published_sets import check_grids, read_set
from tests.support.tiny_models import tiny, unsettled, video

GRIDS = {"cmert": "anchored", "mat": "sliding"}


def golden(shared, kind, **changes):
    about, arrays, features = read_set(shared, f"{kind}_small")
    named = about["config"]
    settings = {"n_heads": named["NUM_HEADS"], "work_length": named["WORK_MEMORY_LENGTH"]}
    settings |= {"long_length": named["LONG_MEMORY_LENGTH"], "long_stride": named["LONG_MEMORY_SAMPLE_RATE"]}
    settings |= {"anticipation": named["ANTICIPATION_LENGTH"]}
    settings |= {"context": about["context"]} if kind == "cmert" else {"groups": named["GROUPS"]}
    path = shared / "data" / "golden" / f"{kind}_small.pth"
    return about, checkpoint.load(path, settings | changes), arrays, features


@pytest.fixture(params=GRIDS)
def published(shared, request):
    return golden(shared, request.param)


def check_scores(scores, logits, kind):
    """MAT keeps other keys where two tie to rounding, so that a chunk in a hundred may be further off."""
    apart = (scores - torch.from_numpy(logits).softmax(dim=-1)).abs().flatten(1).amax(dim=1)  # (L,)
    assert apart.max() < (1e-4 if kind == "mat" else 1e-5)
    assert (apart < 1e-5).float().mean() >= 0.99


def test_published_weights_give_the_published_scores(published):
    """Of whole videos, as defined and as computed; the newest chunk and those ahead."""
    _, loaded, arrays, features = published
    config = loaded.config
    assert config.grid == GRIDS[config.kind] and (config.future, config.n_generated) == (24, 10)
    assert loaded.assumed == {}
    check_scores(predict_ahead(loaded.model, features), arrays["logits"], config.kind)


@pytest.mark.long
def test_a_stream_of_published_weights_gives_the_published_scores(published):
    _, loaded, arrays, features = published
    config, state = loaded.config, streaming.create(loaded.model)
    until = config.long_length + config.work_length + 20  # past the chunk at which the memory is full
    rows = [row.split([config.rgb_dim, config.flow_dim]) for row in torch.from_numpy(features[:until])]
    scores = torch.stack([streaming.step_ahead(loaded.model, state, *row) for row in rows])
    check_scores(scores, arrays["logits"][:until], config.kind)


def test_windows_are_the_published_ones(published):
    """Which chunks they hold, and the logits of every stage and of the generated future."""
    _, loaded, arrays, features = published
    config = loaded.config
    check_grids(arrays, config)
    if config.kind == "cmert":
        for part in ("window", "train"):
            ends = arrays[f"{part}_start"] + config.work_length - 1
            assert (memory.context_indices(ends, config) == arrays[f"{part}_context_index"]).all()
    ends = arrays["window_start"] + config.work_length - 1
    with torch.no_grad():
        logits = loaded.model(gather(features, ends, config)).numpy()
    names = [f"window_work_logits_{i}" for i in range(3)]
    names += ["window_future_logits", *(f"window_future_logits_{i}" for i in range(2))]
    expected = np.concatenate([arrays[name] for name in names if name in arrays], axis=1)
    assert np.abs(logits - expected).max() < 1e-4


@pytest.mark.parametrize("kind, part", [("cmert", "train"), ("mat", "train"), ("mat", "late")])
def test_training_is_the_published_one(shared, kind, part):
    """Loss and gradient of a batch, by the function that training uses; of MAT batches of either path."""
    grouping = {"grouping": "batch"} if kind == "mat" else {}
    about, loaded, arrays, features = golden(shared, kind, **grouping)
    model = loaded.model.train()
    windows = gather(features, arrays[f"{part}_start"] + loaded.config.work_length - 1, loaded.config, True)
    n_work = len(arrays[f"{part}_work_losses"])
    future = [arrays[f"{part}_future_target"]] * len(arrays[f"{part}_future_losses"])
    targets = torch.from_numpy(np.concatenate([arrays[f"{part}_target"]] * n_work + future, axis=1)).float()
    counts = torch.ones(targets.shape[:2], dtype=torch.bool)
    loss = model.loss(model(windows), windows, Supervision(targets, counts, about["ambiguous"]))
    assert loss.item() == pytest.approx(float(arrays[f"{part}_loss"]), rel=1e-5)
    if part == "train":
        loss.backward()
        for name, parameter in model.named_parameters():
            expected = about["train_gradient_norms"][name]
            assert parameter.grad.norm().item() == pytest.approx(expected, rel=1e-4), name


def test_targets_are_the_published_ones(published):
    """Of both halves of the outputs: the work memory with what follows, and the future past the end of the video."""
    _, loaded, arrays, _ = published
    config, outputs = loaded.config, loaded.model.outputs()
    one = LabelledVideo("v", TwoStreamArray(arrays["rgb"], arrays["flow"]), arrays["target"])
    for part in [part for part in ("train", "late") if f"{part}_start" in arrays]:
        drawn = [(0, int(start) + config.work_length - 1) for start in arrays[f"{part}_start"]]
        targets, counts = make_targets([one], drawn, config, outputs)
        n_work, future = len(arrays[f"{part}_work_losses"]), arrays[f"{part}_future_target"]
        halves = targets.split([targets.shape[1] - future.shape[1], future.shape[1]], dim=1)
        assert (halves[1].numpy() == future).all() and counts[:, -future.shape[1] :].all()
        assert (halves[0][:, : arrays[f"{part}_target"].shape[1]].numpy() == arrays[f"{part}_target"]).all()
        assert n_work + len(arrays[f"{part}_future_losses"]) == len(outputs.parts)
    assert [part.weight for part in outputs.parts] == (
        [0.1, 1.0, 0.5] if config.kind == "cmert" else [0.2, 0.2, 1.0, 0.1, 0.1]
    )


@pytest.mark.long
def test_a_batch_of_mat_decides_together_on_request_alone(shared):
    """As the published evaluation does, from its second window on; a stream never does."""
    _, alone, arrays, features = golden(shared, "mat")
    _, together, _, _ = golden(shared, "mat", grouping="batch")
    expected, W = torch.from_numpy(arrays["published_scores"]), alone.config.work_length
    apart = {}
    for name, model in (("alone", alone.model), ("together", together.model)):
        apart[name] = (predict_ahead(model, features)[W - 1 :, 0] - expected[W - 1 :]).abs().amax(dim=1)
    assert apart["together"].max() < 1e-4 and (apart["together"] < 1e-5).float().mean() >= 0.99
    assert (apart["alone"] > 1e-2).sum() == 31  # around the chunk at which the memory is full
    _, visible = memory.long_indices(np.arange(len(features)), alone.config)
    assert (alone.model.grouped(torch.from_numpy(visible)).numpy() == arrays["grouped"]).all()


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("missing", [None, "rgb", "flow"])
def test_features_may_be_standardised_in_training(kind, missing):
    """The branches of a head absorb the mean and the variance of their own features."""
    dims = {f"{missing}_dim": 0} if missing else {}
    model = unsettled(tiny(kind=kind, **dims))
    rows = 3 + 2 * video(30, width=model.config.input_dim)
    mean, std = rows.mean(0), rows.std(0)
    exported = make_model(model.config, 5).eval()
    exported.load_state_dict(model.state_dict())
    exported.absorb(mean, std)
    expected = predict_ahead(model, (rows - mean) / std)
    torch.testing.assert_close(predict_ahead(exported, rows), expected, atol=1e-5, rtol=0)
    same = copy.deepcopy(model)
    same.absorb(torch.zeros(1), torch.ones(1))
    plain = same.state_dict()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in model.state_dict().items())


def test_a_published_file_tells_its_kind(shared, tmp_path):
    """What no tensor tells is the preset's, and is named; a size that the tensors contradict is refused."""
    folder = shared / "data" / "golden"
    for kind, last in (("cmert", "context"), ("mat", "groups")):
        loaded = checkpoint.load(folder / f"{kind}_small.pth", {"n_heads": 4})
        assert (loaded.config.kind, loaded.config.rgb_dim, loaded.config.flow_dim) == (kind, 24, 12)
        assert set(loaded.assumed) == {"work_length", "long_length", "long_stride", last, "anticipation"}
        alone = tiny(kind=kind, flow_dim=0)
        torch.save(alone.state_dict(), tmp_path / "rgb.pth")  # as of a backbone without flow
        found = checkpoint.load(tmp_path / "rgb.pth", {"n_heads": 4, "anticipation": 0}).config
        assert (found.kind, found.rgb_dim, found.flow_dim, found.future) == (kind, 5, 0, 48)
        with pytest.raises(CheckpointError, match="future is 30 in the configuration but 24 in the tensors"):
            checkpoint.load(folder / f"{kind}_small.pth", {"n_heads": 4, "future": 30})


CONFIG = configure(kind="mat", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, work_length=4, long_length=64)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"context": 2}, "context is 2 and kind is mat"),
        ({"long_length": 0}, "long_length is 0 and kind is mat"),
        ({"anticipation": 5, "future": 4}, "anticipation is 5 and future 4"),
        ({"groups": 3}, "groups is 3, and the long memory has 16 slots"),
        ({"groups": 8}, "groups is 8, and the long memory has 16 slots"),
        ({"n_generated": 0}, "n_generated is 0"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit(changes, words):
    with pytest.raises(ConfigError, match=words) as caught:
        change(CONFIG, changes)
    assert caught.value.hint


def test_windows_of_mat_are_tiled_with_their_future():
    """As published: the next window begins after the chunks that this one anticipates, offsets are of the work."""
    config = change(CONFIG, {"anticipation": 3})
    one = LabelledVideo("a", TwoStreamArray(np.zeros((40, 5)), np.zeros((40, 3))), np.zeros((40, 2)))
    epochs = [draw_windows([one], config, TrainConfig(windows="tiled"), epoch) for epoch in range(60)]
    assert {min(end for _, end in drawn) for drawn in epochs} == {3, 4, 5, 6}
    assert set(np.diff(sorted(end for _, end in epochs[0]))[:-1]) == {7}


def test_windows_of_cmert_leave_room_for_what_they_anticipate_twice():
    """As published, where windows are back to back without their future."""
    config = change(CONFIG, {"kind": "cmert", "anticipation": 3})
    assert memory.window_ends(40, 1, config, tails=False).tolist() == [4, 8, 12, 16, 20, 24, 28, 32]
    assert memory.window_ends(40, 2, config, tails=False).tolist()[-1] == 29
