"""What a path holds, as one flat description."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from extractors.errors import MissingPathError, RecipeError
from extractors.video import FrameReader, find_videos, probe
from lstr import checkpoint
from pipelines.detect import is_feature_folder, recipe_of
from pipelines.store import open_features
from pipelines.timeline import FORMAT


def describe(path: str | Path, settings: Mapping[str, str]) -> dict:
    """What a video, feature folder, checkpoint or timeline holds; `kind` says which it is.

    `settings` gives what a published checkpoint does not say. Raises the typed error of that kind.
    """
    path = Path(path)
    if not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if is_feature_folder(path):
        return _features(path)
    if path.is_dir():
        found = find_videos([path])
        return {"kind": "folder of videos", "videos": len(found), "ids": list(found)}
    if path.suffix in (".pt", ".pth", ".tar"):
        return _checkpoint(path, settings)
    if path.suffix == ".json":
        return _timeline(path)
    return _video(path)


def _video(path: Path) -> dict:
    video = probe(path)
    return {
        "kind": "video",
        "size": f"{video.width}x{video.height}",
        "codec": video.codec,
        "rotation": video.rotation,
        "duration": video.duration,
        "frames": len(video.timestamps),
        "header_frames": video.header_frames,
        "frames_24fps": video.n_frames,
        "chunks": video.n_chunks,
        "clock": video.clock,
        "decoder": FrameReader(video).decoder,
    }


def _features(path: Path) -> dict:
    folder = open_features(path)
    lengths, damaged = {}, []
    for video_id in folder.ids():
        try:
            rgb, flow = folder.load(video_id)
        except RecipeError:
            damaged.append(video_id)
            continue
        lengths[video_id] = len(rgb)
        if not (np.isfinite(rgb).all() and np.isfinite(flow).all()):
            damaged.append(video_id)
    recipe = folder.recipe
    described = {
        "kind": "feature folder",
        "videos": len(lengths),
        "chunks": sum(lengths.values()),
        "hours": sum(lengths.values()) / 4 / 3600,
        "damaged": damaged,
        "streams": [folder.rgb.name, folder.flow.name],
    }
    if recipe:
        described |= {
            "recipe_id": recipe.id,
            "random_weights": recipe.random_streams or "none",
            "recipe": asdict(recipe),
        }
    return described


def _checkpoint(path: Path, settings: Mapping[str, str]) -> dict:
    loaded = checkpoint.load(path, settings)
    recipe = recipe_of(loaded)
    return {
        "kind": "checkpoint",
        "format": loaded.format,
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "model": loaded.config.kind,
        "config": asdict(loaded.config),
        **({"assumed": loaded.assumed} if loaded.assumed else {}),
        "classes": list(loaded.classes),
        "recipe_id": recipe.id if recipe else "not recorded",
        "random_weights": (recipe.random_streams or "none") if recipe else "not recorded",
        "metrics": loaded.metrics,
        "versions": loaded.versions,
    }


def _timeline(path: Path) -> dict:
    try:
        timeline = json.loads(path.read_text())
        if timeline["format"] != FORMAT:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise MissingPathError(
            f"{path} is no timeline of {FORMAT}.", "give an ID.json that `lstr detect` wrote."
        ) from error
    segments = timeline.pop("segments")
    shown = [f"{s['start']:.2f}–{s['end']:.2f} {s['label']} {s['score']:.2f}" for s in segments]
    return {"kind": "timeline", **timeline, "segments": shown}
