"""MiniROAD against its published code, and a stream that says the same as the whole video."""

import numpy as np
import pytest
import torch

from lstr import checkpoint
from lstr.batch import predict
from lstr.kinds import configure, make_model, presets
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.window_samples import draw_windows
from lstr.windows.windows import gather, join, multi_hot_cross_entropy
from tests.support.published_sets import read_set


def golden(shared, name):
    about, arrays, features = read_set(shared, name)
    widths = {"rgb_dim": about["rgb_dim"], "flow_dim": about["flow_dim"], "work_length": about["config"]["window_size"]}
    loaded = checkpoint.load(shared / "data" / "golden" / f"{name}.pth", {**widths, "dropout": 0.0})
    return about, loaded, arrays, features


@pytest.mark.parametrize("name", ["miniroad_small", "miniroad_anticipation_small"])
def test_published_weights_give_the_published_scores_and_loss(shared, name):
    about, loaded, arrays, features = golden(shared, name)
    assert loaded.config.kind == "miniroad" and not loaded.assumed
    with torch.no_grad():
        logits = loaded.model.video_logits(torch.from_numpy(features), 64).numpy()  # (L, 1 + A, C)
    assert np.abs(logits[:, 0] - arrays["logits"]).max() < 1e-5
    if "anticipation_logits" in arrays:
        assert np.abs(logits[:, 1:] - arrays["anticipation_logits"]).max() < 1e-5
    else:
        assert np.abs(predict(loaded.model, features).numpy() - arrays["scores"]).max() < 1e-5

    W = loaded.config.work_length
    ends = arrays["train_first_chunk"] + W - 1
    model = loaded.model.train()
    trained = model(gather(features, ends, loaded.config))
    truth = arrays["train_anticipation_target" if "anticipation_logits" in arrays else "train_target"]
    targets = torch.from_numpy(truth).float().reshape(trained.shape)
    loss = multi_hot_cross_entropy(trained, torch.nn.functional.normalize(targets, dim=-1))
    factor = targets[..., 0].numel() if "anticipation_logits" in arrays else 1  # a sum there, a mean here
    assert abs(loss.item() * factor - about["train_loss"]) < 1e-5 * about["train_loss"]
    (loss * factor).backward()
    norms = sorted(parameter.grad.norm().item() for parameter in model.parameters())
    published = sorted(norm for norm in about["train_gradient_norms"].values() if norm is not None)
    assert np.allclose(norms, published, rtol=1e-4)


def test_a_window_of_a_young_video_begins_with_rows_of_zeros():
    torch.manual_seed(0)
    config = configure(kind="miniroad", rgb_dim=5, flow_dim=0, d_model=16, n_heads=4, d_feedforward=24, work_length=6)
    model = make_model(config, 4).eval()
    features = torch.randn(9, 5)
    padded = torch.cat([torch.zeros(5, 5), features])
    young = model(join([gather(features, [end], config) for end in range(9)]))[:, 0]
    expected = torch.stack([model.video_logits(padded[end : end + 6], 1)[-1, 0] for end in range(9)])
    assert (young - expected).abs().max() < 1e-6


def test_windows_end_at_every_stride_th_chunk():
    video = LabelledVideo("a", TwoStreamArray(np.zeros((50, 3)), np.zeros((50, 0))), np.zeros((50, 2)))
    train = TrainConfig(windows="every", stride=4)
    firsts = set()
    for epoch in range(20):
        ends = sorted(end for _, end in draw_windows([video], presets()["miniroad-thumos14"].model, train, epoch))
        assert set(np.diff(ends)) == {4} and ends[0] < 4 and ends[-1] >= 46
        firsts.add(ends[0])
    assert firsts == {0, 1, 2, 3}
