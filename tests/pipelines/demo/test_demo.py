"""The demo, whole, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def lstr(*arguments, home: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lstr_cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LSTR_HOME": str(home)})


def test_demo(tmp_path):
    home, output = tmp_path / "home", tmp_path / "demo"
    first = lstr("demo", "-o", output, home=home)
    assert first.returncode == 0, first.stderr
    metrics = json.loads((output / "metrics.json").read_text())
    ours, baselines = metrics["lstr"]["mAP"], [metrics[name]["mAP"] for name in ("chance", "time_prior")]
    assert ours > 1.5 * max(baselines)
    for value in (ours, *baselines):
        assert f"{value:.3f}" in first.stdout
    report = next(
        Path(line.removeprefix("report: ")) for line in first.stdout.splitlines() if line.startswith("report")
    )
    assert report.is_file() and (home / "default.pt").is_file()
    assert "random weights" in first.stderr

    video = output / "videos" / "scene_08.mp4"
    detected = lstr("detect", video, "-o", tmp_path / "timeline", home=home)
    assert detected.returncode == 0 and (tmp_path / "timeline" / "scene_08.html").is_file()

    before = {p: p.stat().st_mtime_ns for p in (output / "features").rglob("*.npy")}
    again = lstr("demo", "-o", output, home=home)
    assert again.returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in (output / "features").rglob("*.npy")}
