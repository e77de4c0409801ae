"""Checkpoints with settings that claim more memory than the tensors have, or tensors that are not plain numbers."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from lstr import checkpoint
from lstr.checkpoint import Bounded
from lstr.errors import CheckpointError, ConfigError, RecipeError, WeightsError
from lstr.extractors.networks.weights_file import read_content, read_state_dict
from lstr.kinds import OURS, configure, make_model
from lstr.pipelines.features.output_folder import read_calibration
from tests.support.feature_set import TINY

CLASSES = ("Background", "fall")
MILLION = {
    **{"mat": "l_gen refinements l_stage1 n_generated", "cmert": "refine_times l_gen", "colar": "exemplars"},
    **{"miniroad": "n_layers", "lstr": "l_enc n0 d_feedforward", "lfb": "l_dec", "oadtr": "decoder_feedforward"},
}
CLAIMS = [(kind, name, 10**6) for kind, names in MILLION.items() for name in names.split()]
CLAIMS += [("lstr", "l_dec", 60), ("lfb", "d_model", 2**19)]
NOT_PLAIN = {
    "meta": lambda t: t.to("meta"),
    "float8": lambda t: t.to(torch.float8_e4m3fn),
    "sparse": lambda t: t.to_sparse(),
    "quantised": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
    "view": lambda t: t.flatten()[:1].expand(t.numel()).reshape(t.shape) if t.dim() == 1 else t[:1].expand(10**6, -1),
    "complex": lambda t: t.to(torch.complex64),
}
INTEGERS = {"int8": lambda t: t.to(torch.int8), "bool": lambda t: t.bool(), "int64": lambda t: t.long()}


def saved(path: Path, claim: dict | None = None, **settings) -> dict:
    """The content of a checkpoint of a tiny model, with other settings in its configuration."""
    config = configure(**{**TINY, "rgb_dim": 4, "flow_dim": 4, **settings})
    checkpoint.save(path, make_model(config, 2), CLASSES, None, {})
    content = torch.load(path)
    if claim:
        torch.save({**content, "config": json.dumps(json.loads(content["config"]) | claim)}, path)
    return content


def deflate(path: Path) -> None:
    """Compress the members of a file of torch."""
    with zipfile.ZipFile(path) as plain:
        contents = {name: plain.read(name) for name in plain.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as small:
        for name, content in contents.items():
            small.writestr(name, content)


def test_every_kind_of_model_fits_its_bound(tmp_path):
    for kind in OURS:
        config = configure(kind, rgb_dim=4, flow_dim=4, d_model=8, n_heads=2, d_feedforward=8)
        tensors = make_model(config, 2).state_dict()
        with Bounded(tmp_path, tensors):
            make_model(config, 2)


@pytest.mark.parametrize(("kind", "setting", "value"), CLAIMS)
def test_a_claimed_size_is_refused_before_memory_is_allocated(tmp_path, kind, setting, value):
    saved(tmp_path / "c.pt", {setting: value}, kind=kind)
    sizes = []
    hook = torch.nn.modules.module.register_module_parameter_registration_hook(
        lambda module, name, tensor: sizes.append(0 if tensor.is_meta else tensor.numel())
    )
    try:
        with pytest.raises((CheckpointError, ConfigError)):
            checkpoint.load(tmp_path / "c.pt")
    finally:
        hook.remove()
    assert len(sizes) < 20_000 and sum(sizes) < 2**25


@pytest.mark.parametrize(
    ("kind", "setting"), [("lfb", "work_length"), ("colar", "work_length"), ("lfb", "long_length")]
)
def test_a_claimed_memory_is_bounded(tmp_path, kind, setting):
    """No tensor shows these lengths: a file of kilobytes could ask for gigabytes when a stream starts."""
    saved(tmp_path / "c.pt", {setting: 10**6}, kind=kind, rgb_dim=1500, long_stride=1)
    with pytest.raises(CheckpointError, match=r"10000\d+ chunks"):
        checkpoint.load(tmp_path / "c.pt")


@pytest.mark.parametrize("change", ["deflated", "float8", "sparse", "meta", "complex"])
@pytest.mark.filterwarnings("ignore")
def test_the_calibration_of_a_feature_folder_is_checked_too(small_set, tmp_path, change, monkeypatch):
    folder, path = shutil.copytree(small_set.features, tmp_path / "f"), tmp_path / "f" / "calibration.pt"
    content = torch.load(path)
    name = next(iter(content["rgb"]))
    content["rgb"][name] = NOT_PLAIN.get(change, lambda t: torch.zeros(10**6))(content["rgb"][name])
    torch.save(content, path)
    if change == "deflated":
        deflate(path)
        monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(RecipeError, match=r"calibration\.pt"):
        read_calibration(folder)


@pytest.mark.parametrize("read", [checkpoint.load, read_content])
def test_a_compressed_file_is_refused_before_it_is_read(tmp_path, read, monkeypatch):
    torch.save({"model_state_dict": {"w": torch.zeros(10**6)}}, tmp_path / "small.pt")
    deflate(tmp_path / "small.pt")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises((CheckpointError, WeightsError), match=r"small\.pt"):
        read(tmp_path / "small.pt")


@pytest.mark.parametrize("change", [*NOT_PLAIN, *INTEGERS])
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_not_plain_weights_are_refused(tmp_path, change):
    content, name = saved(tmp_path / "c.pt"), "classifier.weight"
    tensors = content["model_state_dict"]
    tensors[name] = {**NOT_PLAIN, **INTEGERS}[change](tensors[name])
    torch.save(content, tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match=r"c\.pt"):
        checkpoint.load(tmp_path / "c.pt")
    if change in NOT_PLAIN:
        with pytest.raises(WeightsError):
            read_state_dict(tmp_path / "c.pt")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_other_precisions_are_read(tmp_path, dtype):
    content = saved(tmp_path / "c.pt")
    tensors = content["model_state_dict"]
    tensors.update((name, tensor.to(dtype)) for name, tensor in tensors.items() if tensor.is_floating_point())
    torch.save(content, tmp_path / "c.pt")
    assert checkpoint.load(tmp_path / "c.pt").classes == CLASSES
