"""What ten-crop features lose when crops share the first layers, computed once for the whole image.

python benchmarks/shared_crops.py VIDEO
"""

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from lstr.extractors.images.crops import fit
from lstr.extractors.networks.runtimes.torch_runtime import scaled
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.file_reader import FrameReader, read_chunks
from lstr.extractors.video.probe import probe
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

CROP, STRIDE = 224, 4  # pixels; the stride of ResNet-50's stem and first stage
CORNERS = ((0, 0), (4, 0), (0, 4), (4, 4))  # in quarter steps, as the crops lie


def main() -> None:
    """Compare each corner crop's features with those from shared layers, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("shared-crops.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    twostream = build_twostream(PRESETS["faithful"], WeightSources(), "cpu", "float32")
    short_side = twostream.recipe.short_side
    chunks = islice(read_chunks(FrameReader(probe(options.video)), 340), 8)
    frames = np.stack([fit(chunk.frames[twostream.recipe.rgb_frame], short_side) for chunk in chunks])
    twostream.calibrate("rgb", frames[:, None, 16 : 16 + CROP, 56 : 56 + CROP])
    network = twostream.networks["rgb"]
    stem = torch.nn.Sequential(network.conv1, network.maxpool, network.layer1)
    rest = torch.nn.Sequential(network.layer2, network.layer3, network.layer4, torch.nn.AdaptiveAvgPool2d(1))
    image = scaled(torch.from_numpy(frames[:1]), twostream.recipe.parts["rgb"])
    steps = [(side - CROP) // 4 for side in (frames.shape[2], frames.shape[1])]
    rows = []
    with torch.inference_mode():
        whole, size = stem(image), CROP // STRIDE
        for corner in CORNERS:
            x, y = (n * step for n, step in zip(corner, steps, strict=True))
            own = stem(image[:, :, y : y + CROP, x : x + CROP])
            shared = whole[:, :, y // STRIDE : y // STRIDE + size, x // STRIDE : x // STRIDE + size]
            exact, features = rest(own), rest(shared)
            rows.append(
                {
                    "corner": [x, y],
                    "positions_that_differ": round(float(((own - shared).abs().amax(1) > 1e-5).float().mean()), 3),
                    "largest_feature": round(float(exact.max()), 3),
                    "largest_difference": round(float((exact - features).abs().max()), 3),
                }
            )
    for row in rows:
        print(row)
    worst = max(row["largest_difference"] / row["largest_feature"] for row in rows)
    positions = [row["positions_that_differ"] for row in rows]
    write_json(
        options.output,
        {
            "corners": rows,
            "fewest_positions": min(positions),
            "most_positions": max(positions),
            "worst_difference_of_largest": round(worst, 2),
            "video": options.video.name,
            **about_machine(),
        },
    )


if __name__ == "__main__":
    main()
