"""Recipes: presets, recipe files, and recipes of feature folders and checkpoints."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.presets import ENTRIES, PRESETS, STREAM_ENTRIES, read_preset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.pipelines.features.recipes import StoredRecipe, choose_recipe, default_recipe, find_recipe, weights_for
from tests.support.errors import assert_error

RGB = NetworkRecipe("resnet50", "kinetics", "0123456789abcdef", 1, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
FLOW = NetworkRecipe(
    "bninception", "random", "fedcba9876543210", 10, (128.0,) * 10, (1.0,) * 10, 2021, calibrated_on=("a", "b")
)


def test_ids_of_recipes_do_not_change():
    """Existing folders and checkpoints must still fit each other."""
    assert Recipe(RGB, FLOW).id == "818007d9561d"
    assert Recipe(RGB, FLOW, precision="bf16", flow_algorithm="dis-medium").id == "d5ed5ca23216"


def test_a_recipe_can_be_written_and_read():
    other_network = replace(RGB, network="mine", width=512)
    for recipe in (Recipe(RGB, FLOW), Recipe(RGB, None, flow_algorithm=None), Recipe(other_network, FLOW)):
        assert Recipe.from_dict(json.loads(recipe.to_json())) == recipe


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        ({"flow": None}, "flow_algorithm"),
        ({"flow": None, "flow_algorithm": None, "rgb": None}, "rgb"),
        ({"flow_algorithm": "tvl1-opencv9"}, "flow_algorithm"),
        ({"colour": 1}, "colour"),
    ],
)
def test_an_invalid_recipe_is_refused(change, entry):
    with pytest.raises(RecipeError, match=entry):
        Recipe.from_dict(json.loads(Recipe(RGB, FLOW).to_json()) | change)


def test_presets_have_the_published_values():
    assert PRESETS["faithful"] is PRESETS["kinetics"] and PRESETS["fast"] == PRESETS["kinetics-fast"]
    for name in ("kinetics", "activitynet"):
        faithful, fast = PRESETS[name], PRESETS[f"{name}-fast"]
        assert (faithful.rgb.crops, faithful.flow.crops, faithful.precision) == (1, 10, "float32")
        assert (fast.rgb.crops, fast.flow.crops, fast.precision) == (1, 1, "fast")
        for preset in (faithful, fast):
            sizes = (preset.long_side, preset.short_side, preset.crop, preset.rgb_frame, preset.flow_algorithm)
            assert sizes == (320, 256, 224, 3, "tvl1")
    rgb, flow = (network_recipe(stream, part) for stream, part in PRESETS["activitynet"].parts.items())
    assert (rgb.dim, flow.dim, flow.mean, flow.std) == (2048, 2048, (127.5,) * 10, (127.5,) * 10)


def write_recipe_file(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_recipe_file_changes_a_preset(tmp_path):
    (tmp_path / "net.pth").write_text("")
    content = {"based_on": "activitynet-fast", "rgb": {"network": "resnet18", "weights": "net.pth"}}
    content |= {"flow": {"mean": [1] * 10}, "flow_algorithm": "dis", "long_side": 340}
    preset = read_preset(write_recipe_file(tmp_path / "own.json", content))
    base = PRESETS["activitynet-fast"]
    assert preset.rgb == replace(base.rgb, network="resnet18", weights=str(tmp_path / "net.pth"))
    assert repr(preset.flow) == repr(replace(base.flow, mean=(1.0,) * 10)), "floats, because the id depends on the text"
    assert (preset.algorithm, preset.long_side, preset.precision) == ("dis", 340, "fast")
    rgb = read_preset(write_recipe_file(tmp_path / "own.json", {"flow": None}))
    assert rgb == PRESETS["kinetics"].narrowed(["rgb"])


@pytest.mark.parametrize(
    ("shape", "size", "coarse"),
    [
        (None, (112, 149), (192, 256)),
        (4 / 3, (112, 149), (192, 256)),
        (16 / 9, (97, 172), (160, 288)),
        (9 / 16, (172, 97), (288, 160)),
        (9.0, (82, 204), (128, 320)),
    ],
)
def test_frames_keep_the_shape_of_the_videos(shape, size, coarse, tmp_path):
    """Except if the recipe has a size; a network that needs multiples of some pixels gets them."""
    preset = PRESETS["pretrained"].seeing(shape)
    assert [part.size for part in preset.parts.values()] == [size, size]
    assert PRESETS["fast"].seeing(shape) == PRESETS["fast"]
    content = {"based_on": "pretrained", "grey": {"size": [64, 85]}, "difference": {"margin": 1.0}}
    preset = read_preset(write_recipe_file(tmp_path / "own.json", content)).seeing(shape)
    assert (preset.grey.size, preset.difference.size) == ((64, 85), size)
    assert PRESETS["people"].seeing(shape).pose.size == coarse


def test_the_documented_recipe_file_is_valid(tmp_path):
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "extract.md").read_text()
    (example,) = (block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "based_on" in block)
    preset = read_preset(write_recipe_file(tmp_path / "own.json", example))
    assert (preset.streams, preset.rgb.network, preset.long_side) == (("rgb",), "shufflenetv2", 340)
    for entry in (*ENTRIES, *STREAM_ENTRIES):
        assert f"`{entry}`" in page, "each entry is documented"


@pytest.mark.parametrize(
    ("content", "entry"),
    [
        ("{", "own.json"),
        ('{"colour": 1}', "'colour'"),
        ('{"rgb": {"colour": 1}}', "'rgb.colour'"),
        ('{"based_on": "mine"}', "based_on"),
        ('{"rgb": null, "flow": null}', "rgb and flow"),
        ('{"flow": {"crops": 5}}', "flow.crops"),
        ('{"rgb": {"mean": "grey"}}', "rgb.mean"),
        ('{"rgb": {"std": [0, 1, 1]}}', "rgb.std"),
        ('{"rgb": {"network": "net.py"}}', "rgb.network"),
        ('{"flow_algorithm": "raft"}', "flow_algorithm"),
        ('{"precision": ["bf16"]}', "precision"),
        ('{"crop": 300}', "crop"),
        ('{"crop": 200}', "32"),
        ('{"rgb_frame": 6}', "rgb_frame"),
    ],
)
def test_an_invalid_entry_of_a_recipe_file_is_named(tmp_path, lstr, content, entry):
    path = write_recipe_file(tmp_path / "own.json", content)
    assert_error(lstr("extract", path, "-o", tmp_path / "f", "--recipe", path), 4, entry)
    assert not (tmp_path / "f").exists()


def test_folder_file_and_checkpoint_give_the_same_recipe(small_set, tmp_path):
    folder = find_recipe(str(small_set.features))
    assert isinstance(folder, StoredRecipe) and set(folder.calibration) == {"rgb", "flow"}
    for path in (small_set.features / "recipe.json", small_set.checkpoint):
        stored = find_recipe(str(path))
        assert stored.recipe == folder.recipe and stored.calibration.keys() == folder.calibration.keys()
    path = write_recipe_file(tmp_path / "copy.json", folder.recipe.to_dict())
    assert find_recipe(str(path)).recipe == folder.recipe
    assert choose_recipe(str(small_set.features), streams="rgb").recipe == folder.recipe.narrowed(["rgb"])
    with pytest.raises(RecipeError, match="recipe.flow_algorithm"):
        choose_recipe(str(small_set.features), algorithm="dis")


def test_settings_change_the_chosen_recipe(tmp_path):
    preset = choose_recipe("fast", "flow", {"flow": "resnet50"}, "dis", "bf16")
    assert (preset.streams, preset.flow.network) == (("flow",), "resnet50")
    assert (preset.algorithm, preset.precision) == ("dis", "bf16")
    for name in ("faithfull", str(tmp_path)):
        with pytest.raises(RecipeError):
            find_recipe(name)
    with pytest.raises(MissingPathError):
        read_preset(tmp_path / "missing.json")
    for value, changes in (("flow.network", {"networks": {"flow": "x"}}), ("flow_algorithm", {"algorithm": "dis"})):
        with pytest.raises(RecipeError, match=value):
            choose_recipe("fast", "rgb", **changes)
    with pytest.raises(WeightsError, match="flow"):
        weights_for(choose_recipe("fast", "rgb"), {"flow": "w.pth"})


def test_the_default_recipe_depends_on_the_device_or_the_folder(tmp_path):
    assert default_recipe(tmp_path / "new", "cpu")[0] == "fast"
    assert default_recipe(tmp_path / "new", "cuda")[0] == "faithful"
    for crops, expected in ((1, "fast"), (10, "faithful")):
        write_recipe_file(tmp_path / "recipe.json", Recipe(RGB, replace(FLOW, crops=crops)).to_dict())
        for device in ("cpu", "cuda"):
            name, reason = default_recipe(tmp_path, device)
            assert name == expected and str(tmp_path) in reason
    write_recipe_file(tmp_path / "recipe.json", (other := Recipe(replace(RGB, crops=2), FLOW)).to_dict())
    assert choose_recipe(default_recipe(tmp_path)[0]).recipe == other
