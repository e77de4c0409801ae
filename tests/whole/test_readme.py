"""What README says exists."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch

from lstr_cli.main import COMMANDS, cli
from tests.support.videos import remux

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def shell_lines() -> list[str]:
    """Each command line of the shell blocks, continuation lines joined, without comments."""
    lines = []
    for block in re.findall(r"```(?:sh|bash)\n(.*?)```", README, re.DOTALL):
        lines += [line.strip() for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if line and not line.startswith("#")]


def python_block(word: str) -> str:
    """The one Python example that has a word in it."""
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in b)
    return block


def lstr_lines() -> list[list[str]]:
    return [shlex.split(part) for line in shell_lines() for part in [line.split("|")[0]] if part.startswith("lstr")]


def test_readme_has_commands():
    assert len(lstr_lines()) >= 8


@pytest.mark.parametrize("words", lstr_lines(), ids=" ".join)
def test_every_command_line_parses(words, tmp_path, monkeypatch):
    """The sub-command exists and takes every option written; nothing is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos.txt").write_text("game.mp4\n")  # which is read as it is parsed
    assert words[1] in COMMANDS
    command = cli.get_command(None, words[1])
    try:
        command.make_context(words[1], words[2:])
    except click.UsageError as error:
        pytest.fail(error.format_message())


def test_every_command_is_in_readme():
    assert {words[1] for words in lstr_lines()} >= set(COMMANDS)


def test_the_hours_of_a_large_data_set_follow_from_the_records():
    """40,000 videos of 150 s at the rates of the whole chain, which are measured again from time to time."""
    for recipe, name in (("fast", "fast"), ("faithful --precision bf16", "faithful-bf16"), ("faithful", "faithful")):
        record = json.loads((ROOT / "benchmarks" / f"chain-{name}.json").read_text())
        rate = record["end_to_end"]["overlapped"]["decisions_per_second"]
        hours = 40_000 * 150 * 4 / rate / 3600
        assert f"| `{recipe}` | {rate:.2f} | {hours:,.0f} | {hours / 100:.0f} h |" in README


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= targets


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'src="([^"]+)"', README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_python_example_runs_as_a_script(small_set, tmp_path):
    block = python_block("import detect")
    block = block.replace("videos/fall-15.mp4", str(small_set.videos / "scene_03.mp4"))
    (tmp_path / "example.py").write_text(block.replace("run/checkpoint.pt", str(small_set.checkpoint)))
    result = subprocess.run([sys.executable, tmp_path / "example.py"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [float(line.split()[0]) for line in lines if line[0].isdigit()] == [0.25 * k for k in range(1, 21)]
    assert any(re.fullmatch(r"\w+ began at [\d.]+ with 0\.\d+", line) for line in lines)
    assert len(block.strip().splitlines()) <= 10


def test_the_streaming_example_runs(small_set, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"rgb": torch.rand(16, 2048), "flow": torch.rand(16, 1024)}
    exec(python_block("streaming.create").replace("run/checkpoint.pt", str(small_set.checkpoint)), given)
    assert given["scores"].shape == (16, 6) and (tmp_path / "cameras.pt").exists()


def test_the_pipe_example_runs(small_set, tmp_path):
    remux(small_set.videos / "scene_03.mp4", tmp_path / "v.mkv")
    (tmp_path / "example.py").write_text(python_block("sys.stdin"))
    with subprocess.Popen(["cat", tmp_path / "v.mkv"], stdout=subprocess.PIPE) as cat:
        result = subprocess.run([sys.executable, tmp_path / "example.py"], stdin=cat.stdout, capture_output=True)
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 20 and lines[0] == "0.25 (6, 64, 96, 3)", result.stderr
