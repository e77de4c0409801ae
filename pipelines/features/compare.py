"""Two feature folders video by video, so that home-made features can be proven against a published set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lstr.extractors.errors import MissingPathError, RecipeError, VideoError
from lstr.extractors.recipe import differences
from lstr.extractors.streams import STREAMS
from lstr.files.arrays import open_array
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.loose_files import ids_below
from lstr.pipelines.progress import Tell

MAX_SHIFT = 8  # chunks
MIN_COSINE = 0.95  # of a video's mean; another decoder or TV-L1 stays above it, another input scale or crop does not
LENGTH_TOLERANCE = 1  # chunks: whether the tail of a video is dropped or filled up
NORM_TOLERANCE = 0.1  # of the norm ratio around 1
TIE = 1e-6  # in mean cosine: a still video matches at every shift, and then 0 is meant


@dataclass(frozen=True)
class Match:
    """One stream of one video in both folders. Cosines and norms are taken at the best shift.

    `shift` is in chunks: row k + shift of mine is most like row k of the reference.
    """

    id: str
    stream: str
    reference_chunks: int | None = None
    chunks: int | None = None
    shift: int | None = None
    cosine: float | None = None
    """Mean over rows."""
    cosine_p5: float | None = None
    norm_ratio: float | None = None
    """Median over rows of mine / reference."""
    reason: str = ""
    """Why the two do not match; empty where they do."""


def pair_streams(reference: Path, mine: Path) -> dict[str, tuple[Path, Path]]:
    """The folder of each stream on both sides; of several, the one whose name both have.

    Raises MissingPathError for a folder that does not exist, RecipeError when no stream is in both or a choice is left.
    """
    pairs = {}
    for path in (reference, mine):
        if not path.is_dir():
            raise MissingPathError(f"{path} is not a folder.", "give two folders that hold rgb_* and flow_* folders.")
    for stream in STREAMS:
        left, right = ({p.name: p for p in side.glob(f"{stream}_*") if p.is_dir()} for side in (reference, mine))
        names = sorted(left.keys() & right.keys())
        if len(names) == 1:
            pairs[stream] = left[names[0]], right[names[0]]
        elif len(left) == len(right) == 1:
            pairs[stream] = next(iter(left.values())), next(iter(right.values()))
        elif left and right:
            both = " against ".join(", ".join(sorted(side)) for side in (left, right))
            raise RecipeError(
                f"Which {stream} folders to compare is open: {both}.",
                "leave one in each folder, or give them the same name.",
            )
    if not pairs:
        raise RecipeError(
            f"{reference} and {mine} have no stream in common.", "both need a folder rgb_* or flow_* of .npy files."
        )
    return pairs


def compare(
    pairs: Mapping[str, tuple[Path, Path]],
    max_shift: int = MAX_SHIFT,
    min_cosine: float = MIN_COSINE,
    progress: Tell = lambda *_: None,
) -> Iterator[Match]:
    """Each stream of each video that both sides have, in the order of ids; `progress` counts arrays.

    Raises VideoError when no video is in both.
    """
    common = {stream: ids_below(left) & ids_below(right) for stream, (left, right) in pairs.items()}
    if not any(common.values()):
        some = [next(iter(ids[:1]), "no video") for ids in only_in(pairs)]
        raise VideoError(
            f"No video is in both folders (the reference has {some[0]!r}, the other {some[1]!r}).",
            "ids are paths in the input folder without ending: extract from the folder that makes them the same.",
        )
    both = sorted((video_id, stream) for stream, ids in common.items() for video_id in ids)
    for done, (video_id, stream) in enumerate(both, 1):
        yield _match(video_id, stream, *pairs[stream], max_shift, min_cosine)
        progress(video_id, done, len(both))


def only_in(pairs: Mapping[str, tuple[Path, Path]]) -> tuple[list[str], list[str]]:
    """Ids that only the reference has, and ids that only the other side has, in any stream."""
    left, right = (set().union(*(ids_below(pair[side]) for pair in pairs.values())) for side in (0, 1))
    return sorted(left - right), sorted(right - left)


def recipe_differences(reference: Path, mine: Path) -> list[str]:
    """`entry: reference's value against mine`, where both folders say how they were made."""
    if not all((path / "recipe.json").exists() for path in (reference, mine)):
        return []
    theirs, ours = open_features(reference).recipe, open_features(mine).recipe
    return differences(theirs, ours) if theirs and ours else []


def summary(matches: Sequence[Match]) -> dict[str, dict[str, float]]:
    """By stream: videos, how many match, and what the rows that could be compared say on average."""
    summed: dict[str, dict[str, float]] = {}
    for stream in STREAMS:
        rows = [m for m in matches if m.stream == stream]
        compared = [m for m in rows if m.cosine is not None]
        if rows:
            summed[stream] = {"videos": len(rows), "matching": sum(not m.reason for m in rows)}
        if compared:
            summed[stream] |= {
                "shift": int(np.median([m.shift for m in compared])),
                "cosine": float(np.mean([m.cosine for m in compared])),
                "cosine_p5": min(m.cosine_p5 for m in compared if m.cosine_p5 is not None),
                "norm_ratio": float(np.median([m.norm_ratio for m in compared])),
            }
    return summed


def as_document(
    pairs: Mapping[str, tuple[Path, Path]], recipes: Sequence[str], matches: Sequence[Match]
) -> dict[str, Any]:
    """Everything as one JSON object."""
    missing, extra = only_in(pairs)
    return {
        "folders": {stream: [str(path) for path in pair] for stream, pair in pairs.items()},
        "recipe_differences": list(recipes),
        "streams": summary(matches),
        "videos": [asdict(match) for match in matches],
        "only_in_reference": missing,
        "only_in_mine": extra,
    }


def _match(video_id: str, stream: str, left: Path, right: Path, max_shift: int, min_cosine: float) -> Match:
    arrays = []
    for side, folder in (("reference", left), ("mine", right)):
        try:
            array = open_array(folder / f"{video_id}.npy")
        except (OSError, ValueError) as error:
            return Match(video_id, stream, reason=f"{side} is damaged: {getattr(error, 'strerror', None) or error}")
        if array.ndim != 2 or not len(array):
            return Match(video_id, stream, reason=f"{side} holds {array.dtype} {array.shape}, not rows of features")
        arrays.append(np.asarray(array, np.float32))
    reference, mine = arrays
    found = Match(video_id, stream, len(reference), len(mine))
    if reference.shape[1] != mine.shape[1]:
        return replace(found, reason=f"widths {reference.shape[1]} and {mine.shape[1]}")
    for side, rows_of_side in (("reference", reference), ("mine", mine)):
        if not np.isfinite(rows_of_side).all():
            return replace(found, reason=f"{side} holds numbers that are not finite")
    norms = np.linalg.norm(reference, axis=1), np.linalg.norm(mine, axis=1)
    units = [a / np.maximum(n, np.finfo(np.float32).tiny)[:, None] for a, n in zip(arrays, norms, strict=True)]
    shift, cosines = _best_shift(units[0], units[1], max_shift)
    rows = slice(max(0, -shift), max(0, -shift) + len(cosines))
    left_norms, right_norms = norms[0][rows], norms[1][rows.start + shift : rows.stop + shift]
    some = left_norms > 0
    ratio = float(np.median(right_norms[some] / left_norms[some])) if some.any() else 1.0
    cosine, reasons = float(cosines.mean()), []
    if abs(len(reference) - len(mine)) > LENGTH_TOLERANCE:
        factor = len(reference) / len(mine)
        cause = f"{factor:.3g} ×: another frame rate, or a part is missing"
        reasons.append(f"lengths {len(reference)} and {len(mine)} ({cause})")
    if shift:
        reasons.append(f"shifted by {shift} chunks")
    if cosine < min_cosine:
        reasons.append(f"cosine {cosine:.3f} is below {min_cosine:g}")
    if abs(ratio - 1) > NORM_TOLERANCE:
        reasons.append(f"norms are {ratio:.3g} times the reference's")
    p5 = float(np.quantile(cosines, 0.05))
    return replace(found, shift=shift, cosine=cosine, cosine_p5=p5, norm_ratio=ratio, reason="; ".join(reasons))


def _best_shift(reference: np.ndarray, mine: np.ndarray, max_shift: int) -> tuple[int, np.ndarray]:
    """Unit rows (L, D) and (M, D) → the shift of the highest mean cosine, the nearest to 0 of equals, and its cosines.

    At least half of the shorter side must overlap.
    """
    best_shift, best, highest = 0, np.empty(0), -np.inf
    zero = [np.logical_not(side.any(axis=1)) for side in (reference, mine)]
    for shift in sorted(range(-max_shift, max_shift + 1), key=abs):
        left, right = max(0, -shift), max(0, shift)  # first rows
        n = min(len(reference) - left, len(mine) - right)
        if 2 * n < min(len(reference), len(mine)):
            continue
        cosines = np.einsum("ld,ld->l", reference[left : left + n], mine[right : right + n])
        cosines[zero[0][left : left + n] & zero[1][right : right + n]] = 1  # zeros on both sides are the same row
        if cosines.mean() > highest + TIE:
            best_shift, best, highest = shift, cosines, cosines.mean()
    return best_shift, best
