"""Extraction with cross-validated networks: each video has features of networks that were not trained on it."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import __version__, checkpoint
from lstr.errors import RecipeError, WeightsError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources, network_files
from lstr.extractors.run import run_on
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.extractors.video.reader import open_chunks
from lstr.kinds import configure, make_model
from lstr.pipelines.features import engines
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions
from lstr.pipelines.features.folder import FeatureFolder, check_recipe, open_features
from lstr.pipelines.features.output_folder import create_output
from lstr.pipelines.features.recipes import choose_recipe, find_recipe, weights_for
from lstr.pipelines.features.video import FoldNetworks, open_worker
from lstr.pipelines.progress import result_of
from tests.support.errors import assert_error
from tests.support.extraction import features_in
from tests.support.feature_set import TINY
from tests.support.finetuned import SMALL

pytestmark = pytest.mark.long

FOLDS = {"scene_00": 1, "scene_01": 2, "scene_02": None}
STREAMS = ["rgb", "flow"]


def open_flow(finetuned, weights) -> FoldNetworks:
    """Open the smaller network, of flow, with its folds."""
    sources = WeightSources({"flow": str(weights)})
    return FoldNetworks(rebuild_twostream(finetuned.weights.recipe.narrowed(["flow"]), sources, "cpu"))


@pytest.fixture(scope="module")
def folder(finetuned, tmp_path_factory):
    weights, path = str(finetuned.weights.path), tmp_path_factory.mktemp("features")
    recipe = find_recipe(weights)
    options = ExtractOptions(path, dict.fromkeys(STREAMS, weights), "cpu", threads=1, workers=1, recipe=recipe)
    assert result_of(extract(finetuned.videos, options)).counts == {"done": 3}
    return open_features(path)


def test_each_video_has_the_features_of_its_fold(finetuned, folder):
    weights = finetuned.weights
    assert folder.recipe == weights.recipe
    assert folder.names == ("rgb_fälle_mobilenetv3", "flow_fälle_shufflenetv2")
    for video_id, fold in FOLDS.items():
        parts = weights.recipe.parts.items()
        hashes = {stream: part.folds[fold - 1] if fold else part.sha256 for stream, part in parts}
        expected = {"networks": hashes, "fold": fold, "seen": [], "recipe": weights.recipe.id, "cached": False}
        assert folder.read_record(video_id).items() >= expected.items()
    files = WeightSources({stream: str(weights.file(stream, 2)) for stream in STREAMS})
    with FlowWorkers(1, "dis") as workers:
        fold_2 = run_on(build_twostream(SMALL, files, "cpu", "float32"), threads=1)
        rows = list(fold_2.rows(open_chunks(finetuned.videos["scene_01"], SMALL.long_side)[2], workers))
    for stream, array in zip(STREAMS, features_in(folder, "scene_01"), strict=True):
        np.testing.assert_array_equal([row.features[stream] for row in rows], array)


def test_processes_and_nodes_extract_the_same_features(finetuned, folder, tmp_path, monkeypatch):
    output = create_output(tmp_path / "features", folder.recipe.narrowed(["flow"]), {})
    path = str(finetuned.weights.path)
    options = ExtractOptions(output.path, {"flow": path}, device="cpu", threads=1)
    with open_worker(pickle.loads(pickle.dumps(options))) as worker:
        assert [*worker.extract("scene_01", finetuned.videos["scene_01"])][-1].state == "done"
    contents = {name: np.fromfile(file, np.uint8) for name, file in network_files(path, "flow").items()}
    task = ("scene_00", finetuned.videos["scene_00"], replace(options, weights={}), contents, __version__)
    monkeypatch.setattr(engines, "_worker", None)
    assert engines.extract_on_node(*task).state == "done"
    engines._worker[2].close()
    for video_id in ("scene_00", "scene_01"):
        assert open_features(output.path).read_record(video_id)["fold"] == FOLDS[video_id]
        assert np.array_equal(features_in(output, video_id)[1], features_in(folder, video_id)[1])


def test_the_fold_follows_from_the_content_or_the_name(finetuned):
    networks, (first, second) = open_flow(finetuned, finetuned.weights.path), finetuned.training.values()
    for video_id, sha256, fold, seen in (
        ("another name", first, 1, []),
        ("scene_01", "0" * 64, 2, []),
        ("scene_00", second, 2, ["flow"]),  # the name belongs to fold 1
        ("new", "0" * 64, None, []),
    ):
        chosen, about = networks.of(video_id, sha256)
        assert (about["fold"], about["seen"]) == (fold, seen) and (chosen is networks.twostream) == (fold is None)


def test_a_single_network_knows_its_training_videos(finetuned, tmp_path):
    file = WeightSources({"rgb": shutil.copy(finetuned.weights.file("rgb", 1), tmp_path / "copy.pth")})
    single = build_twostream(SMALL.narrowed(["rgb"]), file, "cpu", "float32")
    for video_id, seen in {"scene_00": [], "scene_01": ["rgb"], "scene_02": []}.items():
        networks, about = FoldNetworks(single).of(video_id, None)
        assert (about["seen"], about["fold"]) == (seen, None) and networks is single
    assert single.recipe.rgb.weights == "fälle" and single.recipe.rgb.folds == ()
    twostream = open_flow(finetuned, finetuned.weights.path).twostream
    for fold, unseen in ((0, {"scene_02"}), (2, {"scene_01", "scene_02"})):
        facts = {video_id: FoldNetworks(twostream, fold).of(video_id, None)[1] for video_id in FOLDS}
        assert {about["fold"] for about in facts.values()} == {fold or None}
        assert {video_id for video_id, about in facts.items() if not about["seen"]} == unseen


def test_a_second_run_needs_the_same_weights(lstr, run, finetuned, folder):
    weights = finetuned.weights.path
    command = ["extract", finetuned.videos["scene_00"].parent, "-o", folder.path, "--workers", 1, "--recipe"]
    same_recipe = [*command, folder.path]
    with_weights = [*same_recipe, "--weights", f"rgb={weights}", "--weights", f"flow={weights}"]
    for words in ([*command, weights], same_recipe, with_weights):
        assert "3 kept" in run(*words)[1]
    (folder.path / "weights.json").unlink()  # where the networks are
    assert_error(lstr(*same_recipe), 4, "--weights")


def test_networks_that_differ_from_the_recipe_are_refused(finetuned, tmp_path):
    folder = shutil.copytree(finetuned.weights.path, tmp_path / "weights")
    with pytest.raises(WeightsError):  # the recipe has folds
        open_flow(finetuned, folder / "flow.pth")
    content = torch.load(folder / "fold_1" / "flow.pth", weights_only=True)
    next(tensor for tensor in content["state_dict"].values() if tensor.dim() == 4).add_(1)
    torch.save(content, folder / "fold_1" / "flow.pth")
    with pytest.raises(WeightsError, match="fälle") as caught:
        open_flow(finetuned, folder).of("scene_00", None)
    assert caught.value.exit_code == 4 and "--weights flow=DIR" in caught.value.hint
    shutil.copy(folder / "fold_2" / "flow.pth", folder / "fold_1" / "flow.pth")
    with pytest.raises(WeightsError, match="fold 1"):
        open_flow(finetuned, folder)


def test_a_weights_folder_is_a_recipe(finetuned, tmp_path):
    path = str(finetuned.weights.path)
    recipe, of_file = find_recipe(path), find_recipe(str(finetuned.weights.path / "recipe.json"))
    assert recipe == replace(of_file, origin=recipe.origin) and recipe.recipe == finetuned.weights.recipe
    assert weights_for(recipe, {}) == dict.fromkeys(STREAMS, path)
    flow = choose_recipe(path, "flow")
    assert weights_for(flow, {}) == {"flow": path}
    with pytest.raises(WeightsError, match="rgb"):
        weights_for(flow, {"rgb": str(finetuned.weights.file("rgb"))})
    with pytest.raises(RecipeError, match=r"recipe\.json") as caught:
        find_recipe(str(tmp_path))
    assert "finetune" in caught.value.hint


def test_a_checkpoint_of_cross_validated_features_scores_new_videos(lstr, run, finetuned, tmp_path):
    recipe, weights = finetuned.weights.recipe.narrowed(["flow"]), finetuned.weights
    path = tmp_path / "checkpoint.pt"
    model = make_model(configure(rgb_dim=0, flow_dim=1024, **TINY), 2)
    checkpoint.save(path, model, ("Background", "fall"), recipe.to_dict(), {})
    for same in (recipe, recipe.without_folds()):
        assert check_recipe(checkpoint.load(path), FeatureFolder((tmp_path,), {}, {}, same)) == []
    detect = ["detect", finetuned.videos["scene_02"], "-c", path, "-o", tmp_path / "out", "-f", "npy"]
    scores = []
    for file in (weights.path, weights.file("flow")):
        run(*detect, "--weights", f"flow={file}")
        scores.append(np.load(tmp_path / "out" / "scene_02.scores.npy"))
    assert len(scores[0]) == 16 and np.array_equal(*scores)
    fold = ("--weights", f"flow={weights.file('flow', 1)}")
    assert_error(lstr(*detect, *fold), 4, "flow.sha256")
    assert lstr(*detect, *fold, "--set", "recipe.allow_mismatch=true")[0] == 0
    assert not np.array_equal(np.load(tmp_path / "out" / "scene_02.scores.npy"), scores[0])
