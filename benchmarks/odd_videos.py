"""What becomes of each odd video: decoded whole, both networks run on its first chunk; writes odd-videos.json.

python benchmarks/odd_videos.py FOLDER
"""

import argparse
from collections import Counter
from pathlib import Path

import av
import decord
import numpy as np

from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.frames import n_frames_until
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine


def decode(path: Path, twostream: TwoStream, workers: FlowWorkers, allow_damaged: bool = False) -> dict:
    """A file's outcome: `features` with what they are of, or `error` with the sentence that a user reads."""
    try:
        video, reader, chunks = open_chunks(path, twostream.recipe.long_side, allow_damaged)
        first = next(chunks, None)
        n_chunks = (first is not None) + sum(1 for _ in chunks)
    except VideoError as error:
        return {"outcome": "error", "error": str(error).replace(str(path), path.name)}
    if first is None:
        return {"outcome": "error", "error": f"{path.name} is damaged before its first chunk ends."}
    (row,) = twostream.rows([first], workers)
    assert row.rgb.shape == (2048,) and row.flow.shape == (1024,) and np.isfinite([*row.rgb, *row.flow]).all()
    return {
        "outcome": "features",
        "chunks": n_chunks,
        "frames_24fps": n_frames_until(reader.end),
        "source_frames": reader.decoded,
        "decoder": reader.decoder,
        "codec": video.codec,
        "coded_size": [video.width, video.height],
        "working_size": list(first.frames.shape[2:0:-1]),
        "bits": video.bits,
        "rotation": video.rotation,
        "clock": reader.clock,
        "decode_errors": reader.decode_errors,
    }


def outcome(path: Path, twostream: TwoStream, workers: FlowWorkers) -> dict:
    """`decode`, and for a damaged file also what is kept of it with --allow-damaged."""
    found = decode(path, twostream, workers)
    if "is damaged" in found.get("error", ""):
        found["with_allow_damaged"] = decode(path, twostream, workers, allow_damaged=True)
    return found


def odd_videos(folder: Path) -> list[Path]:
    """Every file of the folder but the notes on where they come from."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SOURCES.md")


def main() -> None:
    """Go through a folder and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("odd-videos.json"))
    options = parser.parse_args()
    twostream = build_twostream(PRESETS["fast"], WeightSources(), "cpu", "float32")
    with FlowWorkers(2) as workers:
        found = {
            path.relative_to(options.folder).as_posix(): outcome(path, twostream, workers)
            for path in odd_videos(options.folder)
        }
    counts = Counter(entry.get("decoder", "error") for entry in found.values())
    print(dict(counts))
    write_json(
        options.output,
        {
            "counts": dict(counts),
            **about_machine(av=av.__version__, decord=decord.__version__),
            "files": found,
        },
    )


if __name__ == "__main__":
    main()
