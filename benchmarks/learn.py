"""`lstr learn --flow dis` on two small public sets, and the demo: how long it takes, and what comes of it.

Each is learnt from nothing, in a home folder of its own: the sets with `--flow dis`, as before networks began with
ImageNet weights (few_videos.py has the default), the drawings as the demo does it. The figures of a machine that does
other work say little of its speed.

python benchmarks/learn.py shared/data --work work    writes learn.json and the picture of the demo
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from playwright.sync_api import sync_playwright

from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "learn.json"
PICTURES = RECORD.parents[1] / "docs" / "images"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}
BEFORE = ("--flow", "dis", "--set", "learn.folds=0")
KEPT = ("mAP", "mcAP", "per_class")


def timed(name: str, work: Path, *words: object) -> float:
    """Seconds that a command takes, or took before; it ends this program where it fails."""
    times = work / f"{name}.seconds"
    if not times.exists():
        print("lstr", *words, file=sys.stderr)
        start = perf_counter()
        command = [sys.executable, "-m", "lstr_cli", *map(str, words)]
        subprocess.run(command, check=True, env=os.environ | {"LSTR_HOME": str(work / f"{name}.home")})
        times.write_text(str(round(perf_counter() - start, 1)))
    return float(times.read_text())


def described(model: Path, seconds: float) -> dict:
    """What a model file says of its own quality, and how long it took to make."""
    about = open_model(model).about
    metrics = about["metrics"]
    plan = json.loads((model.with_suffix(".learn") / "plan.json").read_text())["plan"]
    return {
        "seconds": seconds,
        "planned_seconds": round(plan["seconds"], 1),
        "videos": plan["videos"],
        "chunks": plan["chunks"],
        "bytes": model.stat().st_size,
        "events": metrics["events"],
        "interval": metrics["interval"],
        "thresholds": next(iter(about["thresholds"].values())),
        **{system: {key: metrics[system][key] for key in KEPT} for system in ("lstr", "chance", "time_prior")},
    }


def photograph(page: Path, picture: str, height: int) -> None:
    """A page as a person sees it first, but for the frames of its video, which may be nobody's to give away."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": 1100, "height": height}, color_scheme="light")
        shown.goto(page.resolve().as_uri())
        shown.evaluate("document.querySelectorAll('video').forEach(video => { video.style.visibility = 'hidden' })")
        shown.wait_for_timeout(1000)
        shown.screenshot(path=str(PICTURES / picture))
        browser.close()


def main() -> None:
    """Learn what is not yet learnt in the work folder, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=["demo", *SETS], choices=["demo", *SETS], help="the others stay")
    options = parser.parse_args()
    work, record = options.work, json.loads(RECORD.read_text()) if RECORD.exists() else {}
    work.mkdir(exist_ok=True)
    if "demo" in options.only:
        seconds = timed("demo", work, "demo", "-o", work / "demo")
        record["demo"] = {"title": "the demo's drawings"} | described(work / "demo" / "demo.lstr", seconds)
        photograph(work / "demo" / "timeline" / "index.html", "demo-index.png", 430)
    for name in [name for name in SETS if name in options.only]:
        model, folder = work / f"{name}.lstr", options.data / name
        seconds = timed(name, work, "learn", folder / "videos", folder / "labels.json", "-o", model, *BEFORE)
        record[f"{name}-dis"] = {"title": f"{SETS[name]}, `--flow dis`", **described(model, seconds)}
    write_json(RECORD, {**record, **about_machine()})


if __name__ == "__main__":
    main()
