"""Install a fresh clone with `make install`, and record its duration and size.

python benchmarks/install.py [-o RECORD]

The duration depends on the network; packages in pip's cache are not downloaded again.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from lstr.files.content import write_json
from lstr.pipelines.provenance import about_machine

ROOT = Path(__file__).resolve().parents[1]
GPU_PACKAGES = ("nvidia", "triton", "cuda")  # which torch's CPU build does not bring


def megabytes(folder: Path) -> int:
    """Return the size of a folder's files, without following links."""
    return round(sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "install.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "lstr"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        start = time.monotonic()
        subprocess.run(["make", "install"], cwd=clone, check=True, env=environment)
        seconds = round(time.monotonic() - start)
        (site,) = (clone / ".venv" / "lib").glob("python3*/site-packages")
        packages = {path.name: megabytes(path) for path in site.iterdir() if path.is_dir()}
        largest = dict(sorted(packages.items(), key=lambda item: -item[1])[:10])
        whole, for_gpu = megabytes(clone / ".venv"), sum(packages.get(name, 0) for name in GPU_PACKAGES)
        subprocess.run([clone / ".venv" / "bin" / "lstr", "doctor"], check=True, env=environment)
    record = {"seconds": seconds, "megabytes": whole, "for_gpu_megabytes": for_gpu, "largest_megabytes": largest}
    write_json(options.output, about_machine() | record)


if __name__ == "__main__":
    main()
