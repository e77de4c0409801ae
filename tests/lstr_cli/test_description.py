"""What `lstr info` shows a person."""

import subprocess
import sys

from lstr_cli.description import tables


def shown(described: dict) -> dict[str, dict[str, str]]:
    return {title: dict(rows) for title, rows in tables(described)}


def test_units_words_and_nested_entries():
    video = {"kind": "video", "size": "96x64", "rotation": 0, "duration": 5.0, "frames": 12345, "frames_24fps": 120}
    expected = {"size": "96 × 64 pixels", "duration": "5.00 s", "frames": "12,345", "frames at 24 per second": "120"}
    assert shown(video) == {"": expected}
    recipe = {"flow": {"network": "bninception", "mean": [128.0] * 10, "seed": 2021, "config": None}, "fps": 24}
    features = shown({"kind": "feature folder", "hours": 1.5, "failed": [], "faults": [3], "recipe": recipe})
    assert features[""] == {"length in all": "1:30:00", "failed videos": "–"}
    flow = {"flow network": "bninception", "flow mean": "128 (10 times)", "flow seed": "2021"}
    assert features["recipe"] == flow | {"fps": "24"}
    model = shown({"parameters": 264134, "config": {"d_model": 64, "gru": False}})
    assert model == {"": {"parameters": "264,134"}, "model settings": {"d_model": "64", "gru": "no"}}
    assert shown({"ids": [f"v{i}" for i in range(20)]})[""]["ids"].endswith("v11 … (20)")


def test_every_kind_is_described(lstr, small_set):
    recipe = small_set.features / "recipe.json"
    for path, words in {
        small_set.videos / "scene_00.mp4": ("video", "96 × 64 pixels", "5.00 s"),
        small_set.features: ("feature folder", "0:00:20", "flow network\tshufflenetv2"),
        small_set.checkpoint: ("checkpoint", "model settings", "d_model\t64"),
        recipe: ("recipe of features", "network\tmobilenetv3"),
        "faithful": ("recipe", "crops\t10"),
        "pretrained": ("recipe", "size\t149 × 112 pixels"),
    }.items():
        code, out, _ = lstr("info", path)
        assert code == 0 and out.startswith(f"{path}: {words[0]}\n") and all(word in out for word in words), out


def test_a_recipe_of_ones_own(lstr, tmp_path):
    (tmp_path / "own.json").write_text('{"based_on": "fast", "long_side": 160}')
    code, out, _ = lstr("info", tmp_path / "own.json")
    assert code == 0 and "long side\t160" in out


def test_a_video_needs_no_torch(small_set):
    code = (
        "import sys\nfrom lstr_cli.main import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    words = ["info", str(small_set.videos / "scene_00.mp4"), "--json"]
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert run.returncode == 0 and '"chunks": 20' in run.stdout, run.stderr
