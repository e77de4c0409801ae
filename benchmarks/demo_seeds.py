"""What `lstr demo` catches of five sets of drawings, each by another seed; writes demo-seeds.json.

python benchmarks/demo_seeds.py [--seeds 5]
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from lstr.pipelines.demo.demo import SCENES, demo
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import about_machine


def main() -> None:
    """Make each demo in a folder that goes away."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    rows = []
    for seed in range(parser.parse_args().seeds):
        with tempfile.TemporaryDirectory() as folder:
            made = result_of(demo(Path(folder), replace(SCENES, seed=seed)), lambda event: None)
        together = made.events["together"]
        counts = {name: together[name] for name in ("labels", "found", "false_alarms")}
        rows.append({"seed": seed, **counts, "seconds": round(made.seconds, 1)})
        print(rows[-1])
    write_json(Path(__file__).with_name("demo-seeds.json"), {**about_machine(), "demos": rows})


if __name__ == "__main__":  # processes that it begins import it
    main()
