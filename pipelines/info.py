"""What a path holds, as one flat description. What brings torch is imported late: videos and labels need none."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader
from lstr.files.content import read_text
from lstr.pipelines.annotations.formats import recognise
from lstr.pipelines.annotations.label_files import describe_labels, is_label_file
from lstr.pipelines.progress import Tell

if TYPE_CHECKING:  # it brings torch
    from lstr.pipelines.features.folder import FeatureFolder

ZIP = b"PK\x03\x04"
CHECKPOINTS = (".pt", ".pth", ".tar")


def describe(path: str | Path, settings: Mapping[str, str], progress: Tell = lambda *_: None) -> dict:
    """What a video, feature folder, model file, checkpoint, weights, timeline or label file holds, by its `kind`.

    A feature folder is read whole, and `faults` names what is wrong with it. `settings` are what a published
    checkpoint does not tell. Raises the typed error of that kind.
    """
    path = Path(path)
    if not path.exists():
        from lstr.extractors.presets import PRESETS

        if str(path) in PRESETS:
            return _recipe(str(path))
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        return _folder(path, progress)
    if not path.is_file():  # a FIFO would be waited for
        raise MissingPathError(f"{path} is no file on a disk, such as a pipe.", "name a file or a folder.")
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP)) == ZIP
    if is_zip or path.suffix == ".lstr":
        from lstr.pipelines.model_files.model_file import is_meant_as_model

        if is_meant_as_model(path):
            return _model_file(path)
    if path.suffix in CHECKPOINTS:
        return _network(path, settings)
    labels = is_label_file(path)
    form = recognise(path) if labels and path.suffix == ".json" else None
    if path.suffix == ".json" and (not labels or (form and form.name == "json")):  # a timeline can be taken as labels
        return _recipe(str(path)) if _is_recipe(path) else _timeline(path)
    return describe_labels(path) if labels else _video(path)


def _folder(path: Path, progress: Tell) -> dict:
    from lstr.extractors.networks.weights_file import is_weights_folder
    from lstr.pipelines.features.folder import is_feature_folder

    if is_weights_folder(path):
        return _weights_folder(path)
    if is_feature_folder(path):
        return _features(path, progress)
    try:
        found = find_videos([path])
    except MissingPathError:
        if is_label_file(path):
            return describe_labels(path)
        raise
    return {"kind": "folder of videos", "videos": len(found), "ids": list(found)}


def _network(path: Path, settings: Mapping[str, str]) -> dict:
    from lstr.extractors.networks.weights_file import read_card

    with suppress(WeightsError):  # what cannot be read as a checkpoint either fails below, with the reason
        if path.is_file() and (card := read_card(path)):
            return {"kind": "weights file", **asdict(card), "seen": list(card.seen)}
    return _checkpoint(path, settings)


def _is_recipe(path: Path) -> bool:
    """Whether a JSON file is a recipe of one's own, or the one that features or weights carry."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(path))
        return isinstance(values, dict) and "format" not in values and bool({"rgb", "flow", "based_on"} & values.keys())
    return False


def _recipe(name: str) -> dict:
    from lstr.pipelines.features.recipes import StoredRecipe, find_recipe
    from lstr.pipelines.model_files.networks import origins_of

    found = find_recipe(name)
    if isinstance(found, StoredRecipe):
        random = found.recipe.random_streams or "none"
        return (
            {"kind": "recipe of features", "recipe_id": found.recipe.id, "random_weights": random}
            | (found.recipe.to_dict())
            | {"origins": origins_of(found.recipe, {})}
        )
    return {"kind": "recipe", **asdict(found)}


def _video(path: Path) -> dict:
    video = probe(path)
    return {
        "kind": "video",
        "size": f"{video.width}x{video.height}",
        "codec": video.codec,
        "bits": video.bits,
        "sample_aspect": str(video.sample_aspect),
        "rotation": video.rotation,
        "duration": video.duration,
        "frames": len(video.ticks),
        "header_frames": video.header_frames,
        "frames_24fps": video.n_frames,
        "chunks": video.n_chunks,
        "clock": video.clock,
        "damage": video.damage or "none seen without decoding",
        "decoder": FrameReader(video).decoder,
    }


def _features(path: Path, progress: Tell) -> dict:
    from lstr.pipelines.failures import read_failures
    from lstr.pipelines.features.compatibility import count_seen
    from lstr.pipelines.features.folder import open_features
    from lstr.pipelines.features.verify import verify
    from lstr.pipelines.model_files.networks import origins_of, recorded_weights

    folder = open_features(path)
    if folder.stated is not None:
        return _foreign(folder)
    found = verify(folder, progress)
    lengths = found.chunks.values()
    recipe, seen = folder.recipe, count_seen(folder)
    described = {
        "kind": "feature folder",
        "videos": len(lengths),
        "chunks": sum(lengths),
        "hours": sum(lengths) / FEATURES_PER_SECOND / 3600,
        "shortest": min(lengths, default=0),
        "longest": max(lengths, default=0),
        "damaged": sorted({fault.id for fault in found.faults}),
        "faults": [asdict(fault) for fault in found.faults],
        "arrays_checked_by_hash": found.hashed,
        "failed": [failure["id"] for failure in read_failures(path)],
        "leftovers_of_killed_runs": found.leftovers,
        "streams": list(folder.names),
    }
    if recipe:
        described |= {
            "recipe_id": recipe.id,
            "random_weights": recipe.random_streams or "none",
            **({"seen_by_networks": seen} if seen else {}),
            "origins": origins_of(recipe, recorded_weights(path)),
            "recipe": recipe.to_dict(),
        }
    return described


def _foreign(folder: "FeatureFolder") -> dict:
    lengths = folder.lengths()
    about = folder.describe() or {}
    hours = {"hours": folder.clock.length(sum(lengths.values())) / 3600} if "rate" in about else {"rate": "not stated"}
    return {
        "kind": "features of other people",
        "videos": len(lengths),
        "chunks": sum(lengths.values()),
        **hours,
        "shortest": min(lengths.values()),
        "longest": max(lengths.values()),
        **about,
        "ids": [*lengths],
    }


def _checkpoint(path: Path, settings: Mapping[str, str]) -> dict:
    from lstr import checkpoint
    from lstr.pipelines.features.compatibility import training_seen
    from lstr.pipelines.model_files.networks import recipe_of

    loaded = checkpoint.load(path, settings)
    recipe, seen = recipe_of(loaded), training_seen(loaded)
    return {
        "kind": "checkpoint",
        "format": loaded.format,
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "model": loaded.config.kind,
        "preset": loaded.extra.get("preset", "not recorded"),
        **({"changed": loaded.extra["changed"]} if loaded.extra.get("changed") else {}),
        "config": loaded.config.to_dict(),
        **({"assumed": loaded.assumed} if loaded.assumed else {}),
        "classes": list(loaded.classes),
        "recipe_id": recipe.id if recipe else "not recorded",
        **({"store": dict(loaded.store)} if loaded.store else {}),
        "random_weights": (recipe.random_streams or "none") if recipe else "not recorded",
        **({"training_videos_seen": seen} if seen else {}),
        "metrics": loaded.metrics,
        **({"thresholds": _thresholds(loaded.extra["thresholds"])} if loaded.extra.get("thresholds") else {}),
        "versions": loaded.versions,
    }


def _model_file(path: Path) -> dict:
    from lstr.extractors.networks.weights_file import sha256_of
    from lstr.extractors.recipe import INT8
    from lstr.pipelines.model_files.description import actions_of, exported_in_words, is_demo, network_of
    from lstr.pipelines.model_files.model_file import open_model, refusals

    model = open_model(path)
    with refusals(path):
        about = model.about
        metrics, measured = about["metrics"], about["metrics"].get("lstr")
        means = {name: measured.get(name) for name in ("mAP", "mcAP")} if isinstance(measured, dict) else {}
        edges = metrics.get("interval") or {}
        folds = {f"fold {at}": ids for at, ids in enumerate(about.get("folds") or (), start=1)}
        intervals = {"interval": {name: edges[name] for name in means if name in edges}} if edges else {}
        return {
            "kind": "model file",
            "title": about["title"],
            "format": about["format"],
            **({"demo": True} if is_demo(about) else {}),
            "actions": actions_of(about),
            **({"runs_without_torch": exported_in_words(about)} if model.exported is not None else {}),
            "networks": {
                stream: network_of(entry, model.recipe.size_of(stream)) for stream, entry in about["networks"].items()
            },
            "recipe_id": model.recipe.id if about["recipe"] else "features of other people",
            **({"store": store} if (store := (about["checkpoint"]["extra"].get("data") or {}).get("store")) else {}),
            **({INT8: about[INT8]} if INT8 in about else {}),
            "model": about["config"].get("kind"),
            **({"members": members} if (members := about["checkpoint"]["extra"].get("members")) else {}),
            "preset": about["checkpoint"]["extra"].get("preset", "not recorded"),
            "split": about.get("split", "not recorded"),
            "data": about.get("data", "not recorded"),
            "measured": {**means, "videos": metrics.get("videos"), **intervals} if means else "not recorded",
            **({"events": metrics["events"]["together"]} if "together" in (metrics.get("events") or {}) else {}),
            "thresholds": _thresholds(about["thresholds"]) if about["thresholds"] else "the usual ones",
            **({"folds": folds} if folds else {}),
            "trained_on": list(about["seen"]),
            "bytes": model.path.stat().st_size,
            "sha256": sha256_of(model.path),
            "lstr": about["lstr"],
            "versions": about["checkpoint"]["versions"],
        }


def _thresholds(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    from lstr.timeline import changed

    chosen = {label: changed(rules, {}) for label, rules in stored.items()}
    return {
        label: f"on {rules.on:.3f}, off {rules.off:.3f}{', where it is the highest' if rules.highest else ''}"
        + (f", backdated by {rules.backdate:g} s" if rules.backdate else "")
        for label, rules in chosen.items()
    }


def _weights_folder(path: Path) -> dict:
    from lstr.extractors.networks.manifest import origin_of
    from lstr.extractors.networks.weights_folder import open_weights

    folder = open_weights(path)
    about = {name: value for name, value in folder.about.items() if name != "training"}
    origins = {stream: origin for stream in folder.streams if (origin := origin_of(folder.file(stream)))}
    return {
        "kind": "weights folder",
        **about,
        "training": list(folder.about.get("training", {})),
        "pairs": folder.n_folds + 1,
        "origins": {stream: str(origin) for stream, origin in origins.items()},
        "recipe_id": folder.recipe.id,
        "recipe": folder.recipe.to_dict(),
    }


def _timeline(path: Path) -> dict:
    from lstr.errors import LabelsError
    from lstr.pipelines.annotations.annotation import AnnotationSet
    from lstr.pipelines.annotations.timelines import from_timeline
    from lstr.timeline import FORMAT

    try:
        timeline = json.loads(read_text(path))
        if timeline["format"] != FORMAT:
            raise ValueError
        video, _ = from_timeline(timeline)
        AnnotationSet({path.stem: video}).plausible()
        shown = [
            f"{s.start:.2f}–{s.end:.2f} {s.label}" + ("" if s.score is None else f" {s.score:.2f}")
            for s in video.segments
        ]
    except (ValueError, KeyError, TypeError, RecursionError, LabelsError) as error:
        raise MissingPathError(
            f"{path} is no timeline of {FORMAT} and no label file.",
            "give an ID.json that `lstr detect` wrote, or labels in ActivityNet's form.",
        ) from error
    return {"kind": "timeline", **timeline, "segments": shown}
