"""Streams: models of any shape, invalid input, resets and saved streams; tests/lstr/models has every kind."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lstr import batch, checkpoint, streaming
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.kinds import KINDS
from lstr.models.lstr import ENCODERS, INTEGRATIONS
from lstr.settings import defaults
from lstr.windows.windows import gather
from tests.support.tiny_models import check_streams, perturb, run, scores_of, tiny, video

SIZES = {"n0": 4, "n1": 4, "l_enc": 3, "l_dec": 3, "l_gen": 2, "work_length": 7, "long_stride": 5}
SHAPES = {name: st.integers(1, most) for name, most in SIZES.items()} | {
    "grid": st.sampled_from(["anchored", "fixed", "sliding"]),
    "anticipation": st.integers(0, 3),
    "n_heads": st.sampled_from([1, 2, 8]),
    "encoder": st.sampled_from(ENCODERS),
    "integration": st.sampled_from(INTEGRATIONS),
    "positions": st.sampled_from(["slot", "distance"]),
    "gru": st.booleans(),
    "decay": st.sampled_from([1.0, 0.97, 0.5]),
    "context": st.integers(0, 3),
    "groups": st.integers(0, 2),
    "refinements": st.integers(2, 3),
}
LSTR_ONLY = {"encoder", "integration", "positions", "gru"}  # TeSTra has these settings and refuses them


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, derandomize=True)  # of two keys that tie to rounding, MAT may keep another one
@given(st.data())
def test_streams_windows_and_videos_of_any_shape_agree(kind, data):
    settings_of_kind = defaults(KINDS[kind].config)
    names = settings_of_kind.keys() - (LSTR_ONLY if kind == "testra" else ())
    changes = {name: data.draw(values, name) for name, values in SHAPES.items() if name in names}
    if "long_length" in settings_of_kind:
        slots = max(1, changes.get("groups", 1)) * data.draw(st.integers(0, 3), "slots a group")
        changes["long_length"] = slots * changes.get("long_stride", 1)
    total = data.draw(st.integers(1, 30), "total")
    cuts = data.draw(st.lists(st.integers(1, 29), min_size=1, max_size=3), "cuts")
    try:
        model = perturb(tiny(data.draw(st.integers(0, 99), "seed"), kind=kind, **changes))
    except ConfigError:  # settings that exclude each other
        assume(False)
    check_streams(model, [(cut, total - cut) if cut < total else (total,) for cut in cuts])
    if kind == "lstr":
        windows = gather(video(total), range(total), model.config)
        with torch.no_grad():
            logits = model(windows)
        newest = logits[torch.arange(total), windows.work_mask.sum(dim=1) - 1, None]
        defined = torch.cat([newest, logits[:, model.config.work_length :]], dim=1).softmax(dim=-1)
        torch.testing.assert_close(batch.predict_ahead(model, video(total), 16), defined, atol=1e-5, rtol=0)


@pytest.mark.parametrize("missing", ["rgb", "flow"])
def test_a_model_without_rgb_or_flow(missing):
    model = tiny(**{f"{missing}_dim": 0})
    features = video(30, width=model.config.input_dim).numpy()
    state = streaming.create(model)
    pairs = [(None, row) if missing == "rgb" else (row, None) for row in features]
    scores = torch.stack([streaming.step(model, state, *pair) for pair in pairs])
    torch.testing.assert_close(scores, scores_of(model, torch.from_numpy(features))[:, 0], atol=1e-5, rtol=0)


def test_interleaved_streams_do_not_mix():
    model, videos = tiny(gru=True), [video(40), video(40, 1)]
    states = [streaming.create(model), streaming.create(model)]
    scores = [[run(model, videos[i][k : k + 1], states[i]) for i in range(2)] for k in range(40)]
    for features, rows in zip(videos, zip(*scores, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(rows), scores_of(model, features), atol=1e-5, rtol=0)


def test_reset_forgets_features_that_overflow():
    model = tiny()
    state = streaming.create(model)
    state.tensors = {name: torch.full_like(tensor, torch.inf) for name, tensor in state.tensors.items()}
    streaming.reset(state)
    assert torch.equal(run(model, video(30), state), run(model, video(30)))


@pytest.mark.parametrize("n_streams", [1, 2])
def test_invalid_features_are_refused_and_leave_the_stream_unchanged(n_streams):
    model = tiny(gru=True)
    features = torch.stack([video(20, seed) for seed in range(n_streams)], dim=1)  # (T, B, D)
    state = streaming.create(model, n_streams)
    before = run(model, features[:9], state)
    rgb, flow = torch.zeros(n_streams, 5), torch.zeros(n_streams, 3)
    broken = rgb.clone()
    broken[-1, 2] = 3e38  # it would make sums infinite, and later scores NaN
    for pair, name in (
        ((None, flow), "rgb"),
        ((rgb, None), "flow"),
        ((rgb[:, :4], flow), rf"\({n_streams}, 4\)"),
        ((rgb, flow.expand(2, 2, 3)[:, :1]), "flow"),
        ((torch.zeros(3, 5), torch.zeros(3, 3)), rf"\({n_streams}, 5\)"),
        ((broken, flow), None),
        ((rgb * torch.nan, flow), None),
        ((rgb, flow - float("inf")), None),
    ):
        with pytest.raises(LstrError, match=name):
            streaming.step(model, state, *pair)
    for streams in ([0, 0], [], [n_streams], [-1], ["0"], 0):
        with pytest.raises(LstrError):
            streaming.step_streams(model, state, streams, rgb, flow)
    scores = torch.cat([before, run(model, features[9:], state)])
    torch.testing.assert_close(scores[:, -1, 0], scores_of(model, features[:, -1])[:, 0], atol=1e-5, rtol=0)
    with pytest.raises(LstrError):
        streaming.step(tiny(grid="sliding"), state, rgb, flow)


def test_invalid_features_of_a_whole_video_are_refused():
    wrong = [(streaming.create, tiny(), number) for number in (0, "1", 1.5)]
    wrong += [(streaming.reset, streaming.create(tiny()), streams) for streams in (["0"], [1], 0)]
    for call, *values in ((batch.predict, tiny().train(), video(20)), (streaming.create, tiny().train()), *wrong):
        with pytest.raises(LstrError):
            call(*values)
    for shape in ((20, 7), (8,), (1, 20, 8)):
        with pytest.raises(LstrError) as caught:
            batch.predict(tiny(), torch.randn(shape))
        assert str(shape) in str(caught.value)
    features = video(20)
    for chunk, value in ((13, float("nan")), (11, float("-inf"))):
        features[chunk, 2] = value
        with pytest.raises(LstrError, match=f"chunk {chunk}"):
            batch.predict(tiny(), features)


def test_saved_streams_of_other_models_and_invalid_files_are_refused(tmp_path):
    model, path = tiny(), tmp_path / "a.stream"
    streaming.save(path, streaming.create(model))
    models = [tiny(**changes) for changes in ({"grid": "sliding"}, {"d_model": 32}, {"kind": "lfb"}, {"seed": 1})]
    for other in (*models, tiny().train()):
        with pytest.raises(LstrError):
            streaming.restore(path, other)
    checkpoint.save(tmp_path / "best.pt", model, ("Background", "a", "b", "c", "d"), None, {})
    torch.save({"format": "lstr-stream/1"}, tmp_path / "old.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("best.pt", "old.pt", "list.pt"):
        with pytest.raises(LstrError, match=name):
            streaming.restore(tmp_path / name, model)
    with pytest.raises(CheckpointError):
        streaming.save(tmp_path / "none" / "a.stream", streaming.create(model))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match=r"a\.stream"):
        streaming.restore(path, model)


LARGE = torch.tensor([2**63], dtype=torch.uint64), torch.zeros(1, dtype=torch.int64).expand(10**12)
SETTINGS = [f'{{"kind":"lstr","long_length":{n}}}' for n in (str(10**400), "9" * 5000, "NaN", "-3", "[1]")]
DAMAGE = {
    "chunks": [3, 2**70, [2**70], "many", torch.tensor(3), torch.tensor([-1]), torch.tensor([1.5]), *LARGE],
    "tensors": [{}, 2**70, None, torch.zeros(1, dtype=torch.cfloat), "narrow"],
    "config": [None, *SETTINGS],
    "missing": ["config", "chunks", "tensors", "weights"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in DAMAGE.items() for value in values])
def test_a_damaged_stream_is_refused(tmp_path, name, value):
    model, path = tiny(kind="rnn"), tmp_path / "a.stream"
    streaming.save(path, streaming.create(model))
    content = torch.load(path, weights_only=True)
    if name == "missing":
        del content[value]
    elif isinstance(value, str) and name == "tensors":
        content[name] = {key: tensor[..., :1].clone() for key, tensor in content[name].items()}
    else:
        content[name] = value
    torch.save(content, path)
    with pytest.raises(LstrError) as caught:
        streaming.restore(path, model)
    assert len(str(caught.value)) < 300
