"""TeSTra against its published batch evaluation and training, and a stream that says the same as the whole video."""

import json

import numpy as np
import pytest
import torch

from lstr import checkpoint, memory, streaming
from lstr.batch import predict_ahead
from lstr.config import PRESETS, LSTRConfig
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import make_model
from lstr.windows import gather, join
from pipelines.training.config import resolve
from pipelines.training.step import loss_of

SETS = ["testra_box_small", "testra_laplace_small", "testra_anticipation_small"]


def golden(folder, name):
    about = json.loads((folder / f"{name}.json").read_text())
    said = about["config"]
    settings = {"kind": "testra", "rgb_dim": about["rgb_dim"], "flow_dim": about["flow_dim"], "dropout": 0.0}
    settings |= {"n_heads": said["NUM_HEADS"], "work_length": said["WORK_MEMORY_LENGTH"]}
    settings |= {"long_length": said["LONG_MEMORY_LENGTH"], "long_stride": said["LONG_MEMORY_SAMPLE_RATE"]}
    loaded = checkpoint.load(folder / f"{name}.pth", settings | {"decay": said["ENC_ATTENTION_DECAY"]})
    with np.load(folder / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return about, loaded, arrays, np.concatenate([arrays["rgb"], arrays["flow"]], axis=1)


@pytest.fixture(params=SETS)
def published(shared, request):
    return golden(shared / "data" / "golden", request.param)


def probabilities(logits):
    return torch.from_numpy(logits).softmax(dim=-1)


def test_published_weights_give_the_published_scores(published):
    """Of whole videos, as defined and as computed; the newest chunk and those ahead."""
    about, loaded, arrays, features = published
    assert (loaded.config.kind, loaded.config.grid, loaded.assumed) == ("testra", "anchored", {})
    assert loaded.config.anticipation == about["config"]["ANTICIPATION_NUM_SAMPLES"]
    expected = probabilities(arrays["logits"])  # (L, 1 + A, C)
    with torch.no_grad():
        defined = loaded.model.video_logits(torch.from_numpy(features), 64).softmax(dim=-1)
    assert (defined - expected).abs().max() < 1e-5
    assert (predict_ahead(loaded.model, features) - expected).abs().max() < 1e-5


def test_a_stream_of_published_weights_gives_the_published_scores(published):
    _, loaded, arrays, features = published
    expected = probabilities(arrays["logits"])
    state = streaming.create(loaded.model)
    for chunk, row in enumerate(torch.from_numpy(features)):
        scores = streaming.step_ahead(loaded.model, state, *row.split([loaded.config.rgb_dim, loaded.config.flow_dim]))
        assert (scores - expected[chunk]).abs().max() < 1e-5, chunk


def test_windows_are_the_published_ones(published):
    _, loaded, arrays, features = published
    config = loaded.config
    for part, choose in (("window", memory.long_indices), ("train", memory.stretched_indices)):
        ends = arrays[f"{part}_start"] + config.work_length - 1
        indices, visible = choose(ends, config)
        assert (visible == arrays[f"{part}_long_visible"]).all()
        assert (indices[visible] == arrays[f"{part}_long_index"][visible]).all()
    ends = arrays["window_start"] + config.work_length - 1
    with torch.no_grad():
        logits = loaded.model(gather(features, ends, config))
    assert np.abs(logits.numpy() - arrays["window_logits"]).max() < 1e-4


def test_training_is_the_published_one(published):
    """Loss and gradient of a batch, by the function that training uses."""
    about, loaded, arrays, features = published
    model = loaded.model.train()
    logits = model(gather(features, arrays["train_start"] + loaded.config.work_length - 1, loaded.config, True))
    targets = torch.from_numpy(arrays["train_target"]).float()
    counts = torch.ones(targets.shape[:2], dtype=torch.bool)
    loss = loss_of(logits, targets, counts, model.outputs(), about["ambiguous"])
    assert loss.item() == pytest.approx(about["train_loss"], rel=1e-5)
    loss.backward()
    names = {"future_tokens.weight": "dec_query.weight"}
    for name, parameter in model.named_parameters():
        expected = about["train_gradient_norms"][names.get(name, name)]
        assert parameter.grad.norm().item() == pytest.approx(expected, rel=1e-4), name
