"""Names and shapes of published tensors, of the kinds whose published code has them recorded."""

import json

import pytest
import torch

from lstr.kinds import KINDS, make_model, presets


@pytest.mark.parametrize(
    ("preset", "keys", "changes"),
    [
        ("trn-thumos14", "trn_thumos", {}),
        ("testra-thumos14", "testra_thumos", {}),
        ("cmert-thumos14", "cmert_thumos", {}),
        ("mat-thumos14", "mat_thumos", {}),
        ("oadtr-thumos14", "oadtr_thumos_anet", {}),
        ("gatehub-thumos14", "gatehub_thumos", {"flow_dim": 2048}),
        ("colar-thumos14", "colar_thumos", {"flow_dim": 2048}),
    ],
)
def test_tensors_are_the_published_ones(shared, preset, keys, changes):
    published = json.loads((shared / "facts" / "keys" / f"{keys}_keys.json").read_text())
    tensors = {name: torch.empty(shape, device="meta") for name, shape in published.items()}
    if preset == "colar-thumos14":  # which its authors keep in another file
        tensors["exemplars"] = torch.empty(21, 10, 4096, device="meta")
    config = presets()[preset].model.replace(**changes)
    made = KINDS[config.kind].published.renamed(tensors)
    with torch.device("meta"):
        ours = make_model(config, 22).state_dict()
    assert {name: tensor.shape for name, tensor in made.items()} == {n: tensor.shape for n, tensor in ours.items()}
