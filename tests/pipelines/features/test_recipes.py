"""Recipes: what the presets are, files of one's own, and doing the same as features that are there."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import ENTRIES, PRESETS, STREAM_ENTRIES, StreamPreset, read_preset
from lstr.extractors.recipe import NetworkRecipe, Recipe, differences
from lstr.extractors.twostream import build_twostream
from lstr.pipelines.features.recipes import StoredRecipe, choose_recipe, default_recipe, find_recipe, weights_for

RGB = NetworkRecipe("resnet50", "kinetics", "0123456789abcdef", 1, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
FLOW = NetworkRecipe(
    "bninception", "random", "fedcba9876543210", 10, (128.0,) * 10, (1.0,) * 10, 2021, calibrated_on=("a", "b")
)


def test_the_ids_of_recipes_stay_as_they_were():
    """Folders and checkpoints that are there already must go on fitting each other."""
    assert Recipe(RGB, FLOW).id == "818007d9561d"
    assert Recipe(RGB, FLOW, precision="bf16", flow_algorithm="dis-medium").id == "d5ed5ca23216"


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(RGB, FLOW),
        Recipe(RGB, None, flow_algorithm=None),
        Recipe(replace(RGB, network="mine", width=512), FLOW),
    ],
)
def test_a_recipe_is_read_as_it_was_written(recipe):
    again = Recipe.from_dict(json.loads(recipe.to_json()))
    assert again == recipe and again.id == recipe.id and differences(again, recipe) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"flow": None}, "flow_algorithm and no flow"),
        ({"flow": None, "flow_algorithm": None, "rgb": None}, "a network for none of rgb"),
        ({"flow_algorithm": "tvl1-opencv9"}, "flow_algorithm"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change, reason):
    with pytest.raises(RecipeError, match=reason):
        Recipe.from_dict(json.loads(Recipe(RGB, FLOW).to_json()) | change)


def test_a_recipe_of_one_stream_forgets_what_made_the_other():
    both = Recipe(RGB, FLOW, rgb_frame=2)
    assert both.narrowed(["rgb"]) == Recipe(RGB, None, rgb_frame=2, flow_algorithm=None)
    assert both.narrowed(["flow"]) == Recipe(None, FLOW) and both.narrowed(["flow"]).algorithm == "tvl1"
    assert differences(both.narrowed(["rgb"]), both) == [
        "flow: none against random bninception",
        'flow_algorithm: none against "tvl1-opencv5"',
    ]


def test_the_presets_are_the_published_ones():
    """Widths, channels, scales and crops as the facts have them (section 0)."""
    assert PRESETS["faithful"] is PRESETS["kinetics"] and PRESETS["fast"] == PRESETS["kinetics-fast"]
    for name in ("kinetics", "activitynet"):
        faithful, fast = PRESETS[name], PRESETS[f"{name}-fast"]
        assert (faithful.rgb.crops, faithful.flow.crops, faithful.precision) == (1, 10, "float32")
        assert (fast.rgb.crops, fast.flow.crops, fast.precision) == (1, 1, "fast")
        for preset in (faithful, fast):
            sizes = (preset.long_side, preset.short_side, preset.crop, preset.rgb_frame, preset.flow_algorithm)
            assert sizes == (320, 256, 224, 3, "tvl1")
    assert network_recipe("rgb", PRESETS["activitynet"].rgb).dim == 2048
    recipe = build_twostream(PRESETS["activitynet"].narrowed(["flow"]), WeightSources(), "cpu").recipe
    assert recipe.flow.dim == 2048 and recipe.precision == "float32"
    assert (recipe.flow.mean, recipe.flow.std) == ((127.5,) * 10, (127.5,) * 10)
    assert recipe.flow.folder("flow") == "flow_random_resnet50"


def test_a_recipe_file_says_what_differs(tmp_path):
    (tmp_path / "net.pth").write_text("")
    (tmp_path / "own.json").write_text(
        json.dumps(
            {
                "based_on": "activitynet-fast",
                "rgb": {"network": "resnet18", "weights": "net.pth"},
                "flow": {"mean": [1] * 10},
                "flow_algorithm": "dis",
                "long_side": 340,
            }
        )
    )
    preset = read_preset(tmp_path / "own.json")
    base = PRESETS["activitynet-fast"]
    assert preset.rgb == replace(base.rgb, network="resnet18", weights=str(tmp_path / "net.pth"))
    assert repr(preset.flow) == repr(replace(base.flow, mean=(1.0,) * 10)), "no whole numbers: the id has their text"
    assert (preset.algorithm, preset.long_side, preset.precision) == ("dis", 340, "fast")
    (tmp_path / "own.json").write_text('{"flow": null}')
    assert read_preset(tmp_path / "own.json") == PRESETS["kinetics"].narrowed(["rgb"])


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (None, [(112, 149), (112, 149)]),
        (4 / 3, [(112, 149), (112, 149)]),
        (16 / 9, [(97, 172), (97, 172)]),
        (9 / 16, [(172, 97), (172, 97)]),
        (9.0, [(82, 204), (82, 204)]),
    ],
)
def test_pictures_are_seen_in_the_shape_that_videos_have(shape, sizes):
    """The sides of a camera's picture of 16:9 were never seen."""
    seeing = PRESETS["pretrained"].seeing(shape)
    assert [part.size for part in seeing.parts.values()] == sizes
    assert PRESETS["fast"].seeing(shape) == PRESETS["fast"], "squares stay squares"


def test_a_size_that_is_named_stays(tmp_path):
    content = {"based_on": "pretrained", "grey": {"size": [64, 85]}, "difference": {"margin": 1.0}}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    seeing = read_preset(tmp_path / "mine.json").seeing(16 / 9)
    assert (seeing.grey.size, seeing.difference.size) == ((64, 85), (97, 172))
    vit = StreamPreset("timm:vit_small_patch14_dinov2.lvd142m", size=(112, 154), follows=True)
    assert PRESETS["grey"].having({"grey": vit}).seeing(16 / 9).grey.size == (112, 154), "its patches would not fit"


def test_the_recipe_file_in_the_documentation_is_one(tmp_path):
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "extract.md").read_text()
    (example,) = (block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "based_on" in block)
    (tmp_path / "mine.json").write_text(example)
    preset = read_preset(tmp_path / "mine.json")
    assert (preset.streams, preset.rgb.network, preset.long_side) == (("rgb",), "shufflenetv2", 340)
    for entry in (*ENTRIES, *STREAM_ENTRIES):
        assert f"`{entry}`" in page, "each entry is documented"


@pytest.mark.parametrize(
    ("content", "entry"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"colour": 1}', "'colour'"),
        ('{"rgb": {"colour": 1}}', "'rgb.colour'"),
        ('{"based_on": "mine"}', "based_on"),
        ('{"rgb": null, "flow": null}', "rgb and flow"),
        ('{"rgb": 3}', "rgb: expected `object | null`, got `int`"),
        ('{"flow": {"crops": 5}}', "flow.crops"),
        ('{"flow": {"crops": true}}', "flow.crops"),
        ('{"rgb": {"mean": "grey"}}', "rgb.mean"),
        ('{"rgb": {"std": [0, 1, 1]}}', "rgb.std"),
        ('{"rgb": {"network": 50}}', "rgb.network"),
        ('{"rgb": {"network": "net.py"}}', "rgb.network"),
        ('{"rgb": {"network": "../net"}}', "rgb.network"),
        ('{"flow_algorithm": "raft"}', "flow_algorithm"),
        ('{"precision": ["bf16"]}', "precision"),
        ('{"long_side": "wide"}', "long_side"),
        ('{"crop": 300}', "crop"),
        ('{"crop": 200}', "multiple of 32"),
        ('{"rgb_frame": 6}', "rgb_frame"),
    ],
)
def test_a_recipe_file_that_is_wrong_is_named_by_its_entry(tmp_path, lstr, content, entry):
    (tmp_path / "own.json").write_text(content)
    code, out, err = lstr("extract", tmp_path, "-o", tmp_path / "f", "--recipe", tmp_path / "own.json")
    assert code == 4 and out == "" and err.count("error: ") == err.count("hint: ") == 1 and "Traceback" not in err
    assert entry in err, err
    assert not (tmp_path / "f").exists()


def test_the_same_recipe_as_that(small_set, tmp_path):
    """A feature folder, its recipe.json and a checkpoint trained on it all mean the same, calibration included."""
    folder = find_recipe(str(small_set.features))
    assert isinstance(folder, StoredRecipe) and set(folder.calibration) == {"rgb", "flow"}
    for same in (small_set.features / "recipe.json", small_set.checkpoint):
        found = find_recipe(str(same))
        assert found.recipe == folder.recipe and found.calibration.keys() == folder.calibration.keys()
    (tmp_path / "copy.json").write_text(folder.recipe.to_json())
    assert find_recipe(str(tmp_path / "copy.json")).recipe == folder.recipe
    assert choose_recipe(str(small_set.features), streams="rgb").recipe == folder.recipe.narrowed(["rgb"])
    with pytest.raises(RecipeError, match="recipe.flow_algorithm=dis"):
        choose_recipe(str(small_set.features), algorithm="dis")


def test_what_is_asked_for_must_be_there(tmp_path, small_set):
    for wrong in ("faithfull", str(tmp_path)):
        with pytest.raises(RecipeError, match="neither a recipe nor a file|no recipe.json"):
            find_recipe(wrong)
    with pytest.raises(MissingPathError):
        read_preset(tmp_path / "none.json")
    with pytest.raises(RecipeError, match="recipe.flow.network"):
        choose_recipe("fast", "rgb", {"flow": "resnet50"})
    with pytest.raises(RecipeError, match="recipe.flow_algorithm is"):
        choose_recipe("fast", "rgb", algorithm="dis")
    with pytest.raises(WeightsError, match="no flow stream"):
        weights_for(choose_recipe("fast", "rgb"), {"flow": "w.pth"})
    preset = choose_recipe("fast", "flow", {"flow": "resnet50"}, "dis", "bf16")
    assert (preset.streams, preset.flow.network, preset.algorithm, preset.precision) == (
        ("flow",),
        "resnet50",
        "dis",
        "bf16",
    )


def test_the_recipe_that_nobody_names(tmp_path, small_set):
    """By the device for a new folder; a folder that was begun keeps its own, whatever the machine."""
    assert default_recipe(tmp_path / "new", "cpu")[0] == "fast"
    assert default_recipe(tmp_path / "new", "cuda")[0] == "faithful"
    begun = json.loads((small_set.features / "recipe.json").read_text())
    begun["rgb"] |= {"network": "resnet50"}
    begun["flow"] |= {"network": "bninception"}
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.json").write_text(json.dumps(begun))
    for device in ("cpu", "cuda"):
        name, why = default_recipe(tmp_path / "begun", device)
        assert name == "fast" and str(tmp_path / "begun") in why
    begun["flow"] |= {"crops": 10}
    (tmp_path / "begun" / "recipe.json").write_text(json.dumps(begun))
    assert default_recipe(tmp_path / "begun", "cpu")[0] == "faithful"
