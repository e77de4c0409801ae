"""TeSTra against its published batch evaluation and training, and a stream that says the same as the whole video."""

import numpy as np
import pytest
import torch

from lstr import checkpoint, streaming
from lstr.batch import predict_ahead
from lstr.errors import CheckpointError
from lstr.kinds import change, configure, make_model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.window_samples import draw_windows
from lstr.windows import indices as memory
from lstr.windows.windows import Supervision, gather
from tests.support.published_sets import check_grids, read_set
from tests.support.tiny_models import unsettled, video

SETS = ["testra_box_small", "testra_laplace_small", "testra_anticipation_small"]


def golden(shared, name):
    about, arrays, features = read_set(shared, name)
    said = about["config"]
    settings = {"kind": "testra", "rgb_dim": about["rgb_dim"], "flow_dim": about["flow_dim"], "dropout": 0.0}
    settings |= {"n_heads": said["NUM_HEADS"], "work_length": said["WORK_MEMORY_LENGTH"]}
    settings |= {"long_length": said["LONG_MEMORY_LENGTH"], "long_stride": said["LONG_MEMORY_SAMPLE_RATE"]}
    path = shared / "data" / "golden" / f"{name}.pth"
    return about, checkpoint.load(path, settings | {"decay": said["ENC_ATTENTION_DECAY"]}), arrays, features


@pytest.fixture(params=SETS)
def published(shared, request):
    return golden(shared, request.param)


def probabilities(logits):
    return torch.from_numpy(logits).softmax(dim=-1)


def test_published_weights_give_the_published_scores(published):
    """Of whole videos, as defined and as computed; the newest chunk and those ahead."""
    about, loaded, arrays, features = published
    assert (loaded.config.kind, loaded.config.grid, loaded.assumed) == ("testra", "anchored", {})
    assert loaded.config.anticipation == about["config"]["ANTICIPATION_NUM_SAMPLES"]
    expected = probabilities(arrays["logits"])  # (L, 1 + A, C)
    assert (predict_ahead(loaded.model, features) - expected).abs().max() < 1e-5


@pytest.mark.long
def test_a_stream_of_published_weights_gives_the_published_scores(published):
    _, loaded, arrays, features = published
    expected = probabilities(arrays["logits"])
    state = streaming.create(loaded.model)
    for chunk, row in enumerate(torch.from_numpy(features[:180])):
        scores = streaming.step_ahead(loaded.model, state, *row.split([loaded.config.rgb_dim, loaded.config.flow_dim]))
        assert (scores - expected[chunk]).abs().max() < 1e-5, chunk


def test_windows_are_the_published_ones(published):
    _, loaded, arrays, features = published
    config = loaded.config
    check_grids(arrays, config)
    ends = arrays["window_start"] + config.work_length - 1
    with torch.no_grad():
        logits = loaded.model(gather(features, ends, config))
    assert np.abs(logits.numpy() - arrays["window_logits"]).max() < 1e-4


def test_training_is_the_published_one(published):
    """Loss and gradient of a batch, by the function that training uses."""
    about, loaded, arrays, features = published
    model = loaded.model.train()
    windows = gather(features, arrays["train_start"] + loaded.config.work_length - 1, loaded.config, True)
    targets = torch.from_numpy(arrays["train_target"]).float()
    counts = torch.ones(targets.shape[:2], dtype=torch.bool)
    loss = model.loss(model(windows), windows, Supervision(targets, counts, about["ambiguous"]))
    assert loss.item() == pytest.approx(about["train_loss"], rel=1e-5)
    loss.backward()
    names = {"future_tokens.weight": "dec_query.weight"}
    for name, parameter in model.named_parameters():
        expected = about["train_gradient_norms"][names.get(name, name)]
        assert parameter.grad.norm().item() == pytest.approx(expected, rel=1e-4), name


CONFIG = configure(
    kind="testra", grid="anchored", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=4,
    long_length=16, n0=3, n1=4,
)  # fmt: skip


def tiny(**changes):
    torch.manual_seed(0)
    return unsettled(make_model(change(CONFIG, changes), 5).eval())


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_a_chunk_leaves_the_memory_of_a_stream(decay):
    """The published stream keeps every chunk for ever under the box kernel."""
    model, features = tiny(decay=decay), video(40)
    other = features.clone()
    other[8] += 5
    state = streaming.create(model, 2)
    pair = torch.stack([features, other], dim=1)
    scores = torch.stack([streaming.step(model, state, row[:, :5], row[:, 5:]) for row in pair])
    apart = (scores[:, 0] - scores[:, 1]).abs().amax(dim=1) > 1e-6
    # in the work memory for 4 chunks, then in every fourth long memory, 4 times
    assert apart.nonzero()[:, 0].tolist() == [8, 9, 10, 11, 15, 19, 23, 27]


def test_a_published_file_is_of_the_kind_that_its_user_names(shared):
    """Tensors are LSTR's but for the tokens of the future, whose name is TeSTra's own."""
    folder = shared / "data" / "golden"
    widths = {"rgb_dim": 24, "flow_dim": 12, "n_heads": 8}
    plain = checkpoint.load(folder / "testra_box_small.pth", widths).config
    named = checkpoint.load(folder / "testra_box_small.pth", {**widths, "kind": "testra"})
    assert (plain.kind, plain.grid, named.config.kind, named.config.grid) == ("lstr", "sliding", "testra", "anchored")
    assert named.assumed == {"work_length": 32, "long_length": 2048, "long_stride": 4, "decay": 1.0}
    ahead = checkpoint.load(folder / "testra_anticipation_small.pth", widths).config
    assert (ahead.kind, ahead.anticipation) == ("testra", 8)
    with pytest.raises(CheckpointError, match="anticipation is 4 in the configuration but 8 in the tensors"):
        checkpoint.load(folder / "testra_anticipation_small.pth", {**widths, "anticipation": 4})


def test_a_trained_model_is_of_no_other_kind(tmp_path):
    checkpoint.save(tmp_path / "a.pt", tiny(), "abcde", None, {})
    assert checkpoint.load(tmp_path / "a.pt").config == CONFIG
    with pytest.raises(CheckpointError, match="of kind testra, not lstr"):
        checkpoint.load(tmp_path / "a.pt", {"kind": "lstr", "grid": "fixed"})


def test_tiled_windows_take_their_future_with_them():
    """As published: the next window begins after the chunks that this one anticipates."""
    ends = memory.window_ends(40, 2, change(CONFIG, {"anticipation": 3}))
    assert ends.tolist() == [5, 12, 19, 26, 33, 39]
    firsts = {min(end for _, end in tiled(3, epoch)) for epoch in range(60)}
    assert firsts == {3, 4, 5, 6, 7, 8, 9}


def tiled(anticipation, epoch):
    """The windows of one epoch on a video of 40 chunks."""
    one = LabelledVideo("a", TwoStreamArray(np.zeros((40, 5)), np.zeros((40, 3))), np.zeros((40, 2)))
    return draw_windows([one], change(CONFIG, {"anticipation": anticipation}), TrainConfig(windows="tiled"), epoch)
