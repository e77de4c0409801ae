"""Published settings other than those whose defaults are known, and what is said of files that cannot be loaded."""

import pytest
import torch
from torch import nn

from lstr import checkpoint
from lstr.batch import predict
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import configure, make_model
from lstr.windows.windows import Supervision, gather
from tests.support.tiny_models import TINY, run, tiny, unsettled, video

WIDTHS = {"rgb_dim": 5, "flow_dim": 3}


def published_miniroad(n_layers: int, width: int = 15) -> tuple[dict, nn.GRU, nn.Sequential, nn.Linear]:
    torch.manual_seed(0)
    head, gru = nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.ReLU()), nn.GRU(12, width, n_layers)
    last = nn.Linear(width, 4)
    tables = {"layer1.": head, "gru.": gru, "f_classification.0.": last}
    tensors = {start + name: t for start, layer in tables.items() for name, t in layer.state_dict().items()}
    return tensors, gru, head, last


@pytest.mark.parametrize("n_layers", [1, 3])
def test_a_miniroad_of_any_width_and_depth(n_layers, tmp_path):
    """Heads, which it has none of, were asked for; of a deeper GRU the tensors were said to be unknown."""
    tensors, gru, head, last = published_miniroad(n_layers)
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
def test_a_file_tells_refinements_and_layers(settings, tmp_path):
    model = unsettled(tiny(**{**settings, "long_stride": 1}))
    torch.save({"model_state_dict": model.state_dict()}, tmp_path / "a.pth")
    untold = ("n_heads", "work_length", "long_length", "long_stride", "groups", "context", "anticipation", "grid")
    named = {name: getattr(model.config, name) for name in untold if hasattr(model.config, name)}
    if settings["kind"] == "mat":
        named["n1"] = model.config.n1  # of no use to it
    loaded = checkpoint.load(tmp_path / "a.pth", named).model
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


def saved(path, model, **extra):
    torch.save({"model_state_dict": {**model.state_dict(), **extra}}, path)
    return path


def test_a_guessed_kind_is_said(tmp_path):
    """With all other settings named, a TeSTra was read as an LSTR without a word."""
    path = saved(tmp_path / "a.pth", tiny(kind="testra"))
    known = {name: TINY[name] for name in ("n_heads", "work_length", "long_length")} | {"long_stride": 4} | WIDTHS
    assert checkpoint.load(path, known).assumed == {"kind": "lstr"}
    assert checkpoint.load(path, {**known, "kind": "testra", "decay": 1.0}).assumed == {}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(saved(tmp_path / "b.pth", tiny(), more=torch.zeros(1)), known)
    assert "--set model.kind=testra" in caught.value.hint


def test_no_number_of_heads_is_proposed(tmp_path):
    """Any divisor of the width would load, and score otherwise than the one that it was trained with."""
    torch.manual_seed(0)
    path = saved(tmp_path / "a.pth", make_model(configure(**{**TINY, "d_model": 24}), 5))
    with pytest.raises(ConfigError, match="n_heads") as caught:
        checkpoint.load(path, WIDTHS)
    assert "--set model.n_heads=…" in caught.value.hint
    assert not any(character.isdigit() for character in caught.value.hint)


SPLIT = {"rgb_dim": 24, "flow_dim": 12}


@pytest.mark.parametrize(
    "name, given, kind, assumed",
    [
        ("testra_box", {"n_heads": 8}, "lstr", {"kind", "work_length", "long_length", "long_stride"}),
        (
            "testra_box",
            {"n_heads": 8, "kind": "testra"},
            "testra",
            {"work_length", "long_length", "long_stride", "decay"},
        ),
        ("testra_anticipation", {"n_heads": 8}, "testra", {"work_length", "long_length", "long_stride", "decay"}),
        ("cmert", {"n_heads": 4}, "cmert", {"work_length", "long_length", "long_stride", "context", "anticipation"}),
        ("mat", {"n_heads": 4}, "mat", {"work_length", "long_length", "long_stride", "groups", "anticipation"}),
    ],
)
def test_a_published_file_tells_its_kind(shared, name, given, kind, assumed):
    """What no tensor tells is the preset's, and is named; LSTR's tensors are TeSTra's but for those of the future."""
    widths = SPLIT if name.startswith("testra") else {}
    loaded = checkpoint.load(shared / "data" / "golden" / f"{name}_small.pth", {**widths, **given})
    assert (loaded.config.kind, loaded.config.rgb_dim, loaded.config.flow_dim) == (kind, 24, 12)
    assert set(loaded.assumed) == assumed


@pytest.mark.parametrize("kind", ["cmert", "mat"])
def test_a_backbone_without_flow_tells_its_width(kind, tmp_path):
    alone = tiny(kind=kind, flow_dim=0)
    found = checkpoint.load(saved(tmp_path / "rgb.pth", alone), {"n_heads": 4, "anticipation": 0}).config
    assert (found.kind, found.rgb_dim, found.flow_dim, found.future) == (kind, 5, 0, 48)


@pytest.mark.parametrize(
    "name, given, values",
    [
        ("testra_anticipation", {**SPLIT, "n_heads": 8, "anticipation": 4}, "anticipation is 4 .* 8"),
        ("cmert", {"n_heads": 4, "future": 30}, "future is 30 .* 24"),
        ("mat", {"n_heads": 4, "future": 30}, "future is 30 .* 24"),
        ("oadtr", {**SPLIT, "n_heads": 4, "work_length": 64}, "work_length is 64 .* 16"),
        ("gatehub", {**SPLIT, "n_heads": 4, "long_length": 44}, "n_long is 44 .* 88"),
    ],
)
def test_a_size_that_the_tensors_contradict_is_refused(shared, name, given, values):
    with pytest.raises(CheckpointError, match=values):
        checkpoint.load(shared / "data" / "golden" / f"{name}_small.pth", given)


def test_names_of_the_first_release_of_gatehub_are_known(shared, tmp_path):
    file, settings = shared / "data" / "golden" / "gatehub_small.pth", {**SPLIT, "n_heads": 4}
    older = {"latent_query": "memory_decoder_cls_token_history", "classifier.": "mlp_head."}
    older |= {"present_position_encoding": "short_position_encoding", "history_encoder.ghu": "history_encoder.decoder"}
    tensors = {}
    for name, tensor in torch.load(file).items():
        for new, old in older.items():
            name = name.replace(new, old)
        tensors["module." + name] = tensor
    torch.save({"model": tensors, "epoch": 3}, tmp_path / "older.pth")
    again, loaded = checkpoint.load(tmp_path / "older.pth", settings), checkpoint.load(file, settings)
    features = video(30, width=36)
    assert torch.equal(predict(again.model, features), predict(loaded.model, features))
    del tensors["module.gate_layer.bias"]
    torch.save(tensors, tmp_path / "less.pth")
    with pytest.raises(CheckpointError, match=r"gate\.bias"):
        checkpoint.load(tmp_path / "less.pth", settings)
