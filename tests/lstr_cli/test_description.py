"""What `lstr info` shows a person."""

import subprocess
import sys


def test_every_kind_is_described(lstr, small_set):
    recipe = small_set.features / "recipe.json"
    for path, words in {
        small_set.videos / "scene_00.mp4": ("video", "96 × 64 pixels", "5.00 s"),
        small_set.features: ("feature folder", "0:00:20", "flow network\tshufflenetv2"),
        small_set.checkpoint: ("checkpoint", "d_model\t64"),
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
