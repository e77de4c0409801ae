"""Feature norms of one video over time, and their picture."""

from pathlib import Path

import numpy as np

from lstr.extractors.errors import MissingPathError, OutputError
from lstr.pipelines.features.folder import FeatureFolder, open_features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.palette import MISSING, colour_of

ENDINGS = (".png", ".pdf", ".svg")
# in the palette, all apart from the red of what is missing
PLACES = {"rgb": 0, "flow": 2, "grey": 3, "difference": 4, "change": 5}
COLOURS = {stream: colour_of(place) for stream, place in PLACES.items()}


def plot_features(path: str | Path, picture: Path, video_id: str | None) -> None:
    """Draw the feature norms of one video (the first, where none is named) of a feature folder over time.

    One curve per stream over seconds; rows that are zero or not finite are marked red. Raises MissingPathError when
    `path` is no feature folder or does not hold the video, OutputError for a picture that cannot be written.
    """
    from matplotlib.figure import Figure  # a second of import that nothing else needs

    folder = open_features(path)
    video_id, rows = norms(folder, video_id)
    if picture.suffix.lower() not in ENDINGS:
        raise OutputError(f"{picture} is no picture by its ending.", f"end it in one of {', '.join(ENDINGS)}.")
    figure = Figure(figsize=(10, 2 + 1.6 * len(rows)), layout="constrained")
    figure.suptitle(f"{video_id}: {', '.join(folder.names)}")
    axes = figure.subplots(len(rows), sharex=True, squeeze=False)[:, 0]
    for axis, (stream, norm) in zip(axes, rows.items(), strict=True):
        times = folder.clock.at(np.arange(len(norm), dtype=np.float64))
        sound = np.isfinite(norm) & (norm > 0)
        axis.plot(times, np.where(sound, norm, np.nan), linewidth=1, color=COLOURS[stream])
        axis.plot(times[~sound], np.zeros((~sound).sum()), "|", color=MISSING, markersize=12)
        axis.set_ylabel(f"{stream} norm")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("seconds")
    with replacing(picture) as temporary:
        figure.savefig(temporary, format=picture.suffix[1:].lower(), dpi=120)


def norms(folder: FeatureFolder, video_id: str | None = None) -> tuple[str, dict[str, np.ndarray]]:
    """The Euclidean norm of each row by stream, (L,), of one video: the first one where none is named.

    Raises MissingPathError when the folder does not hold it, RecipeError when it is damaged.
    """
    ids = folder.ids()
    if not ids or (video_id is not None and video_id not in ids):
        some = ", ".join(ids[:3]) or "none"
        raise MissingPathError(
            f"{folder.path} holds no video {video_id or ''}".rstrip() + ".",
            f"name one with --video; it holds: {some}.",
        )
    video_id = video_id or ids[0]
    return video_id, {
        stream: np.linalg.norm(np.asarray(array, np.float32), axis=1)
        for stream, array in folder.arrays(video_id).items()
    }
