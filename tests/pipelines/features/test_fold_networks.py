"""Extraction with a weights folder: each video by the networks that have not seen it, on record, and resumable."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import checkpoint
from lstr.errors import RecipeError, WeightsError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources, network_files
from lstr.extractors.run import run_on
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.extractors.video.reader import open_chunks
from lstr.kinds import configure, make_model
from lstr.pipelines.features import engines
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.folder import FeatureFolder, check_recipe, open_features
from lstr.pipelines.features.output_folder import create_output, read_record
from lstr.pipelines.features.recipes import choose_recipe, find_recipe, weights_for
from lstr.pipelines.features.video import FoldNetworks, open_worker
from tests.support.errors import assert_error
from tests.support.extraction import features_in
from tests.support.feature_set import TINY
from tests.support.finetuned import SMALL

pytestmark = pytest.mark.long

FOLDS = {"scene_00": 1, "scene_01": 2, "scene_02": None}
BOTH = ["rgb", "flow"]


@pytest.fixture(scope="module")
def sources(finetuned):
    return WeightSources(dict.fromkeys(BOTH, str(finetuned.weights.path)))


@pytest.fixture(scope="module")
def twostream(finetuned, sources):
    """Of flow alone, which is the smaller network."""
    return rebuild_twostream(finetuned.weights.recipe.narrowed(["flow"]), sources, "cpu")


@pytest.fixture(scope="module")
def extracted(finetuned, sources, tmp_path_factory):
    """The features of all three videos."""
    recipe = find_recipe(str(finetuned.weights.path))
    path = tmp_path_factory.mktemp("features")
    options = ExtractOptions(path, weights=sources.files, device="cpu", threads=1, workers=1, recipe=recipe)
    events = list(extract(finetuned.videos, options))
    assert [event.state for event in events if isinstance(event, Outcome)] == ["done"] * 3
    return open_features(path)


def test_each_video_has_the_features_of_networks_that_have_not_seen_it(finetuned, extracted):
    weights = finetuned.weights
    assert extracted.recipe == weights.recipe
    assert extracted.names == ("rgb_fälle_mobilenetv3", "flow_fälle_shufflenetv2")
    for video_id, fold in FOLDS.items():
        record = extracted.read_record(video_id)
        parts = {stream: getattr(weights.recipe, stream) for stream in BOTH}
        hashes = {stream: part.folds[fold - 1] if fold else part.sha256 for stream, part in parts.items()}
        told = [record[name] for name in ("networks", "fold", "seen", "recipe", "cached")]
        assert told == [hashes, fold, [], weights.recipe.id, False]
    files = WeightSources({stream: str(weights.file(stream, 2)) for stream in BOTH})
    with FlowWorkers(1, "dis") as workers:
        alone = run_on(build_twostream(SMALL, files, "cpu", "float32"), threads=1)
        rows = list(alone.rows(open_chunks(finetuned.videos["scene_01"], SMALL.long_side)[2], workers))
    for stream, array in zip(BOTH, features_in(extracted, "scene_01"), strict=True):
        np.testing.assert_array_equal([getattr(row, stream) for row in rows], array)


def test_other_processes_and_other_nodes_make_the_same_bits(finetuned, extracted, tmp_path):
    begun = create_output(tmp_path / "features", extracted.recipe.narrowed(["flow"]), {})
    path = str(finetuned.weights.path)
    config = ExtractOptions(begun.path, {"flow": path}, device="cpu", threads=1)
    with open_worker(pickle.loads(pickle.dumps(config))) as worker:
        assert [*worker.extract("scene_01", finetuned.videos["scene_01"])][-1].state == "done"
    sent = {name: np.fromfile(file, np.uint8) for name, file in network_files(path, "flow").items()}
    worker, made = engines._make_worker(replace(config, weights={}), sent)
    with made:
        assert [*worker.extract("scene_00", finetuned.videos["scene_00"])][-1].state == "done"
    for video_id in ("scene_00", "scene_01"):
        assert read_record(begun.record(video_id))["fold"] == FOLDS[video_id]
        assert np.array_equal(features_in(begun, video_id)[1], features_in(extracted, video_id)[1])


def test_a_video_is_known_by_its_content_and_by_its_name(finetuned, twostream):
    networks = FoldNetworks(twostream)
    first, second = finetuned.training.values()
    folds = [networks.of(*video)[1]["fold"] for video in (("another name", first), ("scene_01", "0" * 64))]
    assert folds == [1, 2]
    _, mixed = networks.of("scene_00", second)
    assert mixed["fold"] == 2 and mixed["seen"] == ["flow"], "its pixels are new to the pair, its name is not"
    new, about = networks.of("new", "0" * 64)
    assert new is twostream and about["seen"] == []


def test_networks_of_one_file_or_one_fold_know_what_they_have_seen(finetuned, twostream, tmp_path):
    copied = WeightSources({"rgb": shutil.copy(finetuned.weights.file("rgb", 1), tmp_path / "copy.pth")})
    asked = build_twostream(SMALL.narrowed(["rgb"]), copied, "cpu", "float32")
    chosen = {i: FoldNetworks(asked).of(i, None) for i in FOLDS}
    assert {i: about["seen"] for i, (_, about) in chosen.items()} == {
        "scene_00": [],
        "scene_01": ["rgb"],
        "scene_02": [],
    }
    assert all(about["fold"] is None and networks is asked for networks, about in chosen.values())
    assert asked.recipe.rgb.weights == "fälle" and asked.recipe.rgb.folds == ()
    for without, unseen in ((0, {"scene_02"}), (2, {"scene_01", "scene_02"})):
        found = {i: FoldNetworks(twostream, without).of(i, None)[1] for i in FOLDS}
        assert {about["fold"] for about in found.values()} == {without or None}
        assert {i for i, about in found.items() if not about["seen"]} == unseen


def test_running_again_needs_the_same_folder_of_weights(lstr, finetuned, extracted):
    weights = finetuned.weights
    again = ["extract", finetuned.videos["scene_00"].parent, "-o", extracted.path, "--workers", 1, "--set", "threads=1"]
    of_features = [*again, "--recipe", extracted.path]
    for command in ([*again, "--recipe", weights.path], of_features):  # the folder says where its networks are
        code, _, err = lstr(*command)
        assert code == 0 and "3 kept" in err, err
    (extracted.path / "weights.json").unlink()
    assert_error(lstr(*of_features), 4, "--weights")
    code, _, err = lstr(*of_features, "--weights", f"rgb={weights.path}", "--weights", f"flow={weights.path}")
    assert code == 0 and "3 kept" in err, err


def test_other_networks_than_the_recipes_are_refused(finetuned, tmp_path):
    def networks(path):
        return FoldNetworks(rebuild_twostream(flow, WeightSources({"flow": str(path)}), "cpu"))

    flow, harmed = finetuned.weights.recipe.narrowed(["flow"]), tmp_path / "harmed"
    for name, file in network_files(finetuned.weights.path, "flow").items():
        (harmed / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, harmed / name)
    with pytest.raises(WeightsError):  # one file, where the recipe has folds
        networks(harmed / "flow.pth")
    content = torch.load(harmed / "fold_1" / "flow.pth", weights_only=True)
    next(tensor for tensor in content["state_dict"].values() if tensor.dim() == 4).add_(1)
    torch.save(content, harmed / "fold_1" / "flow.pth")
    with pytest.raises(WeightsError, match="fälle") as caught:
        networks(harmed).of("scene_00", None)
    assert caught.value.exit_code == 4 and "--weights flow=DIR" in caught.value.hint
    shutil.copy(harmed / "fold_2" / "flow.pth", harmed / "fold_1" / "flow.pth")
    with pytest.raises(WeightsError, match="fold 1"):
        networks(harmed)


def test_a_recipe_of_weights(finetuned, tmp_path):
    path = str(finetuned.weights.path)
    given = find_recipe(path)
    of_file = find_recipe(str(finetuned.weights.path / "recipe.json"))
    assert given == replace(of_file, origin=given.origin) and given.recipe == finetuned.weights.recipe
    assert weights_for(given, {}) == dict.fromkeys(BOTH, path)
    narrowed = choose_recipe(path, "flow")
    assert weights_for(narrowed, {}) == {"flow": path}
    with pytest.raises(WeightsError, match="rgb"):
        weights_for(narrowed, {"rgb": str(finetuned.weights.file("rgb"))})
    (tmp_path / "fold_1").mkdir()
    with pytest.raises(RecipeError, match=r"recipe\.json") as caught:
        find_recipe(str(tmp_path))
    assert "finetune" in caught.value.hint


def test_a_checkpoint_of_folded_features_scores_a_new_video_with_the_networks_of_all(lstr, finetuned, tmp_path):
    recipe, weights = finetuned.weights.recipe.narrowed(["flow"]), finetuned.weights
    path = tmp_path / "checkpoint.pt"
    model = make_model(configure(rgb_dim=0, flow_dim=1024, **TINY), 2)
    checkpoint.save(path, model, ("Background", "fall"), recipe.to_dict(), {})
    for made_by in (recipe, recipe.without_folds()):
        assert check_recipe(checkpoint.load(path), FeatureFolder((tmp_path,), {}, {}, made_by)) == []
    detect = ["detect", finetuned.videos["scene_02"], "-c", path, "-o", tmp_path / "out", "-f", "npy"]
    detect += ["--set", "flow_threads=1"]
    for file in (weights.path, weights.file("flow")):
        code, _, err = lstr(*detect, "--weights", f"flow={file}")
        assert code == 0 and len(np.load(tmp_path / "out" / "scene_02.scores.npy")) == 16, err
    assert_error(lstr(*detect, "--weights", f"flow={weights.file('flow', 1)}"), 4, "flow.sha256")
