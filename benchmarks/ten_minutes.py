"""The first quarter of an hour of a new user, as it was: commands, what they printed, and how long each took.

Clones the repository into a new folder, installs it there, and types what README shows. Lines of progress are left out.

python benchmarks/ten_minutes.py shared/data/ut_interaction --work work    writes docs/tutorials/ten-minutes.md
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from lstr.pipelines.provenance import about_machine

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorials" / "ten-minutes.md"
COMMANDS = (
    "make install",
    "make demo",
    "lstr labels check ut_interaction/labels.json ut_interaction/videos",
    "lstr learn ut_interaction/videos ut_interaction/labels.json -o ut.lstr --time 12m",
    "lstr detect ut_interaction/videos/seq10.mp4 -m ut.lstr -o timeline",
)
LEFT_OUT = re.compile(r"[\w /]+: \d+/\d+|WARNING: Location")  # progress, and what pip says of its index
TEXT = """# The first quarter of an hour, as it was

What a new user types, and what came of it, on a machine of {cores} without a GPU ({date}). `ut_interaction` is a folder
with the ten videos of UT-Interaction and their labels. Progress is left out. From the `git clone` to the first
detections of one's own model it took {minutes:.1f} minutes, {install:.1f} of them for the installation.

The commands are explained in [](first-video.md) and [](own-actions.md). `python benchmarks/ten_minutes.py` makes this
page.

"""


def typed(command: str, folder: Path) -> tuple[float, str]:
    """Seconds that a command takes in the clone, and the lines it prints on a terminal's two outputs."""
    print("$", command, file=sys.stderr)
    path = f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LSTR_HOME")}
    start = perf_counter()
    run = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=own | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    seconds = perf_counter() - start
    lines = [line.rstrip() for line in run.stdout.replace(str(folder), "~/lstr").splitlines()]
    return seconds, "\n".join(line.expandtabs(28) for line in lines if not LEFT_OUT.match(line))


def main() -> None:
    """Type everything, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("videos", type=Path, help="folder with videos/ and labels.json")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    options = parser.parse_args()
    clone = options.work.resolve() / "lstr"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / "ut_interaction").symlink_to(options.videos.resolve())
    blocks, times = [], []
    for command in COMMANDS:
        seconds, printed = typed(command, clone)
        times.append(seconds)
        blocks.append(f"```text\n$ {command}\n{printed}\n```\n\n*{seconds:.0f} s*\n".replace("\n\n```", "\n```"))
    machine = about_machine()
    text = TEXT.format(cores=machine["machine"], date=machine["date"], minutes=sum(times) / 60, install=times[0] / 60)
    PAGE.write_text(text + "\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
