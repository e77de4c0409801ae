"""`lstr learn` on two small public sets and on the demo's drawings: how long it takes, and what comes of it.

Each is learnt by the command that README names, from nothing, in a home folder of its own. The figures of a machine
that does other work say little of its speed.

python benchmarks/learn.py shared/data --work work    writes learn.json
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from pipelines.files.json_files import write_json
from pipelines.networks.model_file import open_model
from pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "learn.json"
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}
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


def main() -> None:
    """Learn what is not yet learnt in the work folder, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    work, record = options.work, dict[str, object]()
    work.mkdir(exist_ok=True)
    record["demo"] = {"title": "the demo's drawings"} | described(
        work / "demo" / "demo.lstr", timed("demo", work, "demo", "-o", work / "demo")
    )
    for name, title in SETS.items():
        model, folder = work / f"{name}.lstr", options.data / name
        seconds = timed(name, work, "learn", folder / "videos", folder / "labels.json", "-o", model)
        record[name] = {"title": title, **described(model, seconds)}
    write_json(RECORD, {**record, **about_machine()})


if __name__ == "__main__":
    main()
