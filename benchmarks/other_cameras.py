"""Score held-out videos as other cameras would have them: a record of networks that learnt from their videos as they
are, of networks half of whose pictures shook, and of networks that saw them nearer too, in other-cameras.json.

    nice python benchmarks/other_cameras.py SHARED/data --work WORK [--sets urfall] [--seeds 1]

Three folds as in tuning.py, with the same small pictures of differences. The videos that a fold holds out are changed
frame by frame, as a camera in the wind has them, one nearer to what happens, one farther from it, one in the dark or
one that is noisy; the videos that are learnt from stay as they are. One core.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from network_trials import STILL, STREAM, Fold, NetworkTrials, Systems, config_of, measure, parser_of
from numpy.typing import NDArray

from lstr.extractors.images.crops import picture_of
from lstr.extractors.images.shaking import shaken
from lstr.extractors.recipe import RGB_FRAME
from lstr.extractors.video.frames import CHUNK, FPS
from lstr.pipelines.extraction.chunk_cache import CachedVideo

PLAIN = "as they are"
LEARNT = {PLAIN: STILL, "shaken": {"zoom": "1"}, "shaken, in sizes": {}}
"""What the networks learnt from, by their settings."""
SWAYS, SLOWEST, FASTEST = 6, 0.7, 7.0  # movements of a camera in the wind, each of so many hertz
GUSTS = 2.0  # seconds
Frames = NDArray[np.uint8]
"""(6, H, W)"""


def swaying(n_frames: int, step: float, seed: int) -> NDArray[np.float64]:
    """Where a camera in the wind looks, (n_frames, 2), as shares of the width; `step` is the root of the mean square of
    its steps from frame to frame, to each side and up and down."""
    random, seconds = np.random.default_rng(seed), np.arange(n_frames) / FPS
    gusts = np.arange(0, seconds[-1] + 2 * GUSTS, GUSTS)
    places = np.zeros((n_frames, 2))
    for place in places.T:
        for hertz in random.uniform(SLOWEST, FASTEST, SWAYS):
            place += random.uniform(0.3, 1) / hertz * np.sin(2 * np.pi * (hertz * seconds + random.random()))
        place *= np.interp(seconds, gusts, random.uniform(0.35, 1, len(gusts)))
        place *= step / np.sqrt(np.mean(np.diff(place) ** 2))
    return places


def zoomed(frames: Frames, scale: float) -> Frames:
    """Frames whose middle is so many times larger; what comes into sight is a mirror image."""
    height, width = frames.shape[1:]
    by = np.array([[scale, 0, (1 - scale) * width / 2], [0, scale, (1 - scale) * height / 2]])
    how = {"flags": cv2.INTER_LINEAR, "borderMode": cv2.BORDER_REFLECT_101}
    return np.stack([cv2.warpAffine(frame, by, (width, height), **how) for frame in frames])


@dataclass(frozen=True)
class Change:
    """How another camera would have a video."""

    step: float = 0.0
    scale: float = 1.0
    light: float = 1.0
    noise: float = 0.0
    """Standard deviation in levels of 255, of frames of 256 pixels."""

    def pictures(self, video: CachedVideo, seed: int) -> Callable[[int], NDArray[np.uint8]]:
        """What a stream shows of each chunk of the video."""
        places = swaying(CHUNK * len(video), self.step, seed) if self.step else None

        def picture(index: int) -> NDArray[np.uint8]:
            frames, flow = video.read(index)
            if places is not None:
                frames = shaken(frames, places[CHUNK * index :][:CHUNK])
            if self.scale != 1:
                frames = zoomed(frames, self.scale)
            noise = np.random.default_rng((seed, index)).normal(0, self.noise, frames.shape) if self.noise else 0
            changed = np.clip(frames * self.light + noise, 0, 255).astype(np.uint8)
            return picture_of(STREAM, changed, flow, RGB_FRAME)

        return picture


CHANGES = {
    "as it is": Change(),
    "shakes a little, steps of 0.12 % of the width": Change(step=0.0012),
    "shakes, steps of 0.4 % of the width": Change(step=0.004),
    "nearer, 1.25 times as large": Change(scale=1.25),
    "farther, 0.8 times as large": Change(scale=0.8),
    "half as bright": Change(light=0.5),
    "noisy, by 6 levels": Change(noise=6),
}


def scores(trials: NetworkTrials, name: str, number: int, seed: int) -> Systems:
    """Scores of a fold's videos by what learnt from one kind of camera, as each other one has them."""
    fold = Fold(trials.left(number), trials.folds[number])
    model = trials.train(config_of({"seed": str(seed), **LEARNT[name]}), fold)
    known, found = trials.features(model), dict[str, Mapping]()
    for change_name, change in CHANGES.items():
        seen = {i: change.pictures(trials.cached[i].chunks, at) for at, i in enumerate(fold.testing)}
        changed = known | trials.features(model, seen) if change != Change() else known
        for system, of in trials.scores(model, changed, fold, seed).items():
            found[f"{system}: {change_name}"] = of
    return found


def judged(trials: NetworkTrials, seeds: int) -> dict[str, dict]:
    """{what was learnt from: {system and camera: mAP, its interval, how far ahead of plain pictures}}."""

    def kept(name: str, number: int, seed: int) -> Systems:
        return trials.kept(name, number, seed, partial(scores, trials, name, number, seed))

    runs = trials.pooled(LEARNT, seeds, kept)
    return {name: {"seeds": seeds, **trials.judged(runs, name, PLAIN)} for name in LEARNT}


def main() -> None:
    """Measure the sets and write the record."""
    options = parser_of(__doc__, Path(__file__).with_name("other-cameras.json")).parse_args()
    measure(options, lambda trials: judged(trials, options.seeds))


if __name__ == "__main__":
    main()
