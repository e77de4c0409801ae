"""Settings that are inferred from the tensors of published checkpoints, assumed, or refused."""

import pytest
import torch
from torch import nn

from lstr import checkpoint
from lstr.batch import predict
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import configure, make_model
from lstr.windows.windows import Supervision, gather
from tests.support.tiny_models import TINY, perturb, run, tiny, video

WIDTHS = {"rgb_dim": 5, "flow_dim": 3}
GOLDEN_WIDTHS = {"rgb_dim": 24, "flow_dim": 12}
LENGTHS = {"work_length", "long_length", "long_stride"}


def saved(path, model, **tensors):
    torch.save({"model_state_dict": {**model.state_dict(), **tensors}}, path)
    return path


@pytest.mark.parametrize("n_layers", [1, 3])
def test_miniroad_of_any_width_and_depth(n_layers, tmp_path):
    torch.manual_seed(0)
    head, gru = nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.ReLU()), nn.GRU(12, 15, n_layers)
    layers = {"layer1.": head, "gru.": gru, "f_classification.0.": (last := nn.Linear(15, 4))}
    tensors = {prefix + name: t for prefix, layer in layers.items() for name, t in layer.state_dict().items()}
    torch.save(tensors, tmp_path / "a.pth")
    model = checkpoint.load(tmp_path / "a.pth", WIDTHS).model
    features = video(30)
    with torch.no_grad():
        expected = last(gru(head(features)[:, None])[0][:, 0].relu()).softmax(dim=-1)
    torch.testing.assert_close(predict(model, features), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(run(model, features)[:, 0], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "cmert", "refine_times": 3, "context": 2, "anticipation": 2},
        {"kind": "mat", "l_stage1": 3, "groups": 2},
        {"kind": "mat", "l_stage1": 2, "refinements": 3, "anticipation": 2},
    ],
    ids=str,
)
def test_numbers_of_refinements_and_layers_are_inferred(settings, tmp_path):
    model = perturb(tiny(**{**settings, "long_stride": 1}))
    names = ("n_heads", *LENGTHS, "groups", "context", "anticipation", "grid")
    given = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    if settings["kind"] == "mat":
        given["n1"] = model.config.n1  # MAT has the setting, and does not use it
    loaded = checkpoint.load(saved(tmp_path / "a.pth", model), given).model
    assert loaded.config == model.config.replace(dropout=loaded.config.dropout)
    torch.testing.assert_close(predict(loaded, video(40)), predict(model, video(40)), atol=1e-6, rtol=0)


def test_the_exponents_of_gatehub_are_settings():
    windows = gather(video(30), [29, 20], configure(**TINY, kind="gatehub"))
    supervision = Supervision(torch.eye(5)[torch.arange(12) % 5].view(2, 6, 5), windows.work_mask)
    losses = []
    for changes in ({}, {"gamma": 2.0}, {"gamma_background": 2.0}, {"gamma": 0.05, "gamma_background": 0.1}):
        model = tiny(kind="gatehub", **changes)
        losses.append(model.loss(model(windows), windows, supervision).item())
    assert losses[3] == losses[0] and losses[1] < losses[0] > losses[2] != losses[1]


def test_an_assumed_kind_is_reported(tmp_path):
    path = saved(tmp_path / "a.pth", tiny(kind="testra"))
    settings = {name: TINY[name] for name in ("n_heads", "work_length", "long_length")} | {"long_stride": 4} | WIDTHS
    assert checkpoint.load(path, {**settings, "kind": "testra", "decay": 1.0}).assumed == {}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(saved(tmp_path / "b.pth", tiny(), more=torch.zeros(1)), settings)
    assert "--set model.kind=testra" in caught.value.hint


def test_the_number_of_heads_is_not_assumed(tmp_path):
    """A model with any divisor of the width as number of heads can be loaded, and has other scores."""
    path = saved(tmp_path / "a.pth", make_model(configure(**{**TINY, "d_model": 24}), 5))
    with pytest.raises(ConfigError, match="n_heads") as caught:
        checkpoint.load(path, WIDTHS)
    assert "--set model.n_heads=…" in caught.value.hint
    assert not any(character.isdigit() for character in caught.value.hint)


@pytest.mark.parametrize(
    ("name", "settings", "kind", "assumed"),
    [
        ("testra_box", {"n_heads": 8}, "lstr", {"kind", *LENGTHS}),
        ("testra_box", {"n_heads": 8, "kind": "testra"}, "testra", {*LENGTHS, "decay"}),
        ("testra_anticipation", {"n_heads": 8}, "testra", {*LENGTHS, "decay"}),
        ("cmert", {"n_heads": 4}, "cmert", {*LENGTHS, "context", "anticipation"}),
        ("mat", {"n_heads": 4}, "mat", {*LENGTHS, "groups", "anticipation"}),
    ],
)
def test_the_kind_of_a_published_file_is_inferred(shared, name, settings, kind, assumed):
    """LSTR and TeSTra have the same tensors, except TeSTra's for the future."""
    widths = GOLDEN_WIDTHS if name.startswith("testra") else {}
    loaded = checkpoint.load(shared / "data" / "golden" / f"{name}_small.pth", {**widths, **settings})
    assert (loaded.config.kind, loaded.config.rgb_dim, loaded.config.flow_dim) == (kind, 24, 12)
    assert set(loaded.assumed) == assumed


@pytest.mark.parametrize("kind", ["cmert", "mat"])
def test_the_width_of_a_model_without_flow_is_inferred(kind, tmp_path):
    path = saved(tmp_path / "rgb.pth", tiny(kind=kind, flow_dim=0))
    config = checkpoint.load(path, {"n_heads": 4, "anticipation": 0}).config
    assert (config.kind, config.rgb_dim, config.flow_dim, config.future) == (kind, 5, 0, 48)


@pytest.mark.parametrize(
    ("name", "settings", "values"),
    [
        ("testra_anticipation", {**GOLDEN_WIDTHS, "n_heads": 8, "anticipation": 4}, "anticipation is 4 .* 8"),
        ("cmert", {"n_heads": 4, "future": 30}, "future is 30 .* 24"),
        ("mat", {"n_heads": 4, "future": 30}, "future is 30 .* 24"),
        ("oadtr", {**GOLDEN_WIDTHS, "n_heads": 4, "work_length": 64}, "work_length is 64 .* 16"),
        ("gatehub", {**GOLDEN_WIDTHS, "n_heads": 4, "long_length": 44}, "n_long is 44 .* 88"),
    ],
)
def test_a_size_that_contradicts_the_tensors_is_refused(shared, name, settings, values):
    with pytest.raises(CheckpointError, match=values):
        checkpoint.load(shared / "data" / "golden" / f"{name}_small.pth", settings)


def test_names_of_the_first_release_of_gatehub_are_read(shared, tmp_path):
    file, settings = shared / "data" / "golden" / "gatehub_small.pth", {**GOLDEN_WIDTHS, "n_heads": 4}
    first_names = {"latent_query": "memory_decoder_cls_token_history", "classifier.": "mlp_head."}
    first_names["present_position_encoding"] = "short_position_encoding"
    first_names["history_encoder.ghu"] = "history_encoder.decoder"
    tensors = {}
    for name, tensor in torch.load(file).items():
        for new, first in first_names.items():
            name = name.replace(new, first)
        tensors["module." + name] = tensor
    torch.save({"model": tensors, "epoch": 3}, tmp_path / "first.pth")
    loaded, expected = (checkpoint.load(path, settings).model for path in (tmp_path / "first.pth", file))
    features = video(30, width=36)
    assert torch.equal(predict(loaded, features), predict(expected, features))
    del tensors["module.gate_layer.bias"]
    torch.save(tensors, tmp_path / "less.pth")
    with pytest.raises(CheckpointError, match=r"gate\.bias"):
        checkpoint.load(tmp_path / "less.pth", settings)
