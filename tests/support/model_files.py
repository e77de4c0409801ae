"""Model files: one that can be exported in a second, and files with changed content."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from lstr import checkpoint
from lstr.extractors.networks.archive import CARD, Archive, write_archive
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.twostream import build_twostream, calibration_of
from lstr.kinds import configure, make_model
from lstr.pipelines.model_files.model_file import ModelFile
from lstr.pipelines.model_files.packing import write_average, write_model
from tests.support.small_set import PICTURES, small_preset
from tests.support.tiny_models import TINY

CLASSES = ("Background", "wave", "jump")


def write_exportable(folder: Path, *kinds: str, precision: str = "float32") -> ModelFile:
    """Write a model file of a kind, or of the average of several, on RGB features of a random network."""
    recipe = replace(small_preset({"rgb": "shufflenetv2"}, PICTURES), flow=None, precision=precision)
    twostream = build_twostream(recipe, WeightSources(), "cpu")
    paths = []
    for seed, kind in enumerate(kinds or ("lstr",)):
        torch.manual_seed(seed)
        model = make_model(configure(**{**TINY, "kind": kind, "rgb_dim": 1024, "flow_dim": 0}), len(CLASSES)).eval()
        paths.append(folder / f"{seed}.pt")
        about = twostream.recipe.to_dict(), {}, {}, calibration_of(twostream)
        checkpoint.save(paths[-1], model, CLASSES, *about)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = write_average(folder / "average.pt", paths) if len(paths) > 1 else paths[0]
        return write_model(folder / "model.lstr", path, None, {})


def rewrite_model(source: Path, target: Path, change: Callable[[dict, dict], object]) -> Path:
    """Write a copy of a model file after `change(document, members)`, the content of model.json and the other files."""
    archive = Archive(source)
    members = {name: archive.read(name) for name in archive.members if name != CARD}
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}
    change(document, members)
    write_archive(target, document, "", members)
    return target
