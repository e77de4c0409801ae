"""A model file that can be exported in a second: small networks and a model with random weights."""

import warnings
from dataclasses import replace
from pathlib import Path

import torch

from lstr import checkpoint
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.twostream import build_twostream, calibration_of
from lstr.kinds import configure, make_model
from lstr.pipelines.model_files.model_file import ModelFile
from lstr.pipelines.model_files.packing import write_average, write_model
from tests.support.small_set import PICTURES, small_preset

CLASSES = ("Background", "wave", "jump")
SETTINGS = dict(d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)


def write_exportable(folder: Path, *kinds: str, precision: str = "float32") -> ModelFile:
    """Write a model file of a kind, or of the average of several, on RGB features of a random network."""
    recipe = replace(small_preset({"rgb": "shufflenetv2"}, PICTURES), flow=None, precision=precision)
    twostream = build_twostream(recipe, WeightSources(), "cpu")
    paths = []
    for seed, kind in enumerate(kinds or ("lstr",)):
        torch.manual_seed(seed)
        model = make_model(configure(kind=kind, rgb_dim=1024, flow_dim=0, **SETTINGS), len(CLASSES)).eval()
        paths.append(folder / f"{seed}.pt")
        about = twostream.recipe.to_dict(), {}, {}, calibration_of(twostream)
        checkpoint.save(paths[-1], model, CLASSES, *about)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = write_average(folder / "average.pt", paths) if len(paths) > 1 else paths[0]
        return write_model(folder / "model.lstr", path, None, {})
