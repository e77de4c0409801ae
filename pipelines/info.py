"""Describe the content of a path. Modules that import torch are imported late, because videos do not need it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader
from lstr.files.content import read_object
from lstr.pipelines.annotations.label_files import describe_labels, is_label_file
from lstr.pipelines.model_files.model_file import is_meant_as_model, open_model, refusals
from lstr.pipelines.progress import ProgressCallback

CHECKPOINTS = (".pt", ".pth", ".tar")


def describe(
    path: str | Path, settings: Mapping[str, str], progress: ProgressCallback = lambda *_: None
) -> dict[str, Any]:
    """Describe a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file.

    Args:
        path: The file or folder. A feature folder is read completely, and `faults` lists its errors.
        settings: Settings of the model, for a published checkpoint that does not contain them.
        progress: Is called while a feature folder is read.

    Returns:
        A JSON object with the entry `kind`; a model file also has its `card`, a text. Errors are raised as when the
        file is used.
    """
    path = Path(path)
    if not path.exists():
        from lstr.extractors.presets import PRESETS

        if str(path) in PRESETS:
            return _describe_recipe(str(path))
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        from lstr.extractors.networks.weights_file import is_weights_folder
        from lstr.pipelines.features.folder import is_feature_folder

        if is_weights_folder(path):
            return _describe_weights(path)
        if is_feature_folder(path):
            return _describe_features(path, progress)
        if path.suffix == ".learn":
            raise MissingPathError(f"{path} is a working folder of `lstr learn`.", "name the model file next to it.")
        try:
            found = find_videos([path])
        except MissingPathError:
            if is_label_file(path):
                return describe_labels(path)
            if work := next((parent for parent in path.absolute().parents if parent.suffix == ".learn"), None):
                hint = f"name the model file next to {work.name}."
                raise MissingPathError(f"{path} is in a working folder of `lstr learn`.", hint) from None
            raise
        return {"kind": "folder of videos", "videos": len(found), "ids": list(found)}
    if not path.is_file():  # opening a FIFO would block
        raise MissingPathError(f"{path} is not a regular file.", "name a file or a folder.")
    if is_meant_as_model(path):
        return _describe_model_file(path)
    if path.suffix in CHECKPOINTS:
        return _describe_checkpoint(path, settings)
    if is_label_file(path):
        return describe_labels(path)
    if path.suffix != ".json":
        from lstr.labels.check import LATE_S

        video = probe(path)
        return {
            "kind": "video",
            "size": f"{video.width}x{video.height}",
            "codec": video.codec,
            "bits": video.bits,
            "sample_aspect": str(video.sample_aspect),
            "rotation": video.rotation,
            "duration": video.duration,
            # labels made in a player count from the sound
            **_present(seconds_after_sound=video.start if video.start > LATE_S else 0),
            "frames": len(video.ticks),
            "header_frames": video.header_frames,
            "frames_24fps": video.n_frames,
            "chunks": video.n_chunks,
            "clock": video.clock,
            "damage": video.damage or "none seen without decoding",
            "decoder": FrameReader(video).decoder,
        }
    if {"rgb", "flow", "based_on"}.isdisjoint(read_object(path) or {}):
        raise MissingPathError(f"{path} is not a label file, a timeline or a recipe.", "see `lstr info --help`.")
    return _describe_recipe(str(path))


def _present(**entries: Any) -> dict[str, Any]:
    """Return the entries that are not empty."""
    return {name: value for name, value in entries.items() if value}


def _describe_recipe(name: str) -> dict[str, Any]:
    from lstr.pipelines.features.recipes import StoredRecipe, find_recipe
    from lstr.pipelines.model_files.networks import origins_of

    found = find_recipe(name)
    if not isinstance(found, StoredRecipe):
        return {"kind": "recipe", **asdict(found)}
    recipe = found.recipe
    about = {"recipe_id": recipe.id, "random_weights": recipe.random_streams or "none", **recipe.to_dict()}
    return {"kind": "recipe of features", **about, "origins": origins_of(recipe, {})}


def _describe_weights(path: Path) -> dict[str, Any]:
    from lstr.extractors.networks.manifest import origin_of
    from lstr.extractors.networks.weights_folder import open_weights

    folder = open_weights(path)
    origins = {stream: origin for stream in folder.recipe.streams if (origin := origin_of(folder.file(stream)))}
    return {
        "kind": "weights folder",
        **{name: value for name, value in folder.about.items() if name != "training"},
        "training": list(folder.about.get("training", {})),
        "pairs": 1 + max(len(part.folds) for part in folder.recipe.parts.values()),
        "origins": {stream: str(origin) for stream, origin in origins.items()},
        "recipe_id": folder.recipe.id,
        "recipe": folder.recipe.to_dict(),
    }


def _describe_features(path: Path, progress: ProgressCallback) -> dict[str, Any]:
    from lstr.files.atomic import leftovers
    from lstr.pipelines.failures import read_failures
    from lstr.pipelines.features.folder import open_features, verify
    from lstr.pipelines.features.output_folder import streams_trained_on
    from lstr.pipelines.model_files.networks import origins_of, recorded_weights

    folder = open_features(path)
    lengths, faults, n_hashed = (folder.lengths(), [], 0) if folder.stated else verify(folder, progress)
    n_chunks, foreign = sum(lengths.values()), folder.describe()
    hours: dict[str, Any] = {"hours": n_chunks / FEATURES_PER_SECOND / 3600}
    if foreign is not None:
        hours = {"hours": folder.clock.length(n_chunks) / 3600} if "rate" in foreign else {"rate": "not stated"}
    counts = {
        "videos": len(lengths),
        "chunks": n_chunks,
        **hours,
        "shortest": min(lengths.values(), default=0),
        "longest": max(lengths.values(), default=0),
    }
    if folder.stated:
        return {"kind": "features of other programs", **counts, **(foreign or {}), "ids": [*lengths]}
    described = {
        "kind": "feature folder",
        **counts,
        "damaged": sorted({fault["id"] for fault in faults}),
        "faults": faults,
        "arrays_checked_by_hash": n_hashed,
        "failed": [failure["id"] for failure in read_failures(path)],
        "leftovers_of_killed_runs": len(leftovers(path)),
        "streams": list(folder.names),
    }
    if recipe := folder.recipe:
        described |= {"recipe_id": recipe.id, "random_weights": recipe.random_streams or "none"}
        # Number of videos by the excluded fold of their networks, and how many of them the networks were trained on
        counted: dict[str, dict[str, int]] = {}
        for record in map(folder.read_record, folder.ids()):
            if record is not None and (seen := streams_trained_on(record)) is not None:
                fold = record.get("fold")
                count = counted.setdefault("all" if fold is None else f"fold {fold}", {"videos": 0, "seen": 0})
                count["videos"] += 1
                count["seen"] += bool(seen)
        described |= _present(seen_by_networks=dict(sorted(counted.items())))
        described |= {"origins": origins_of(recipe, recorded_weights(path)), "recipe": recipe.to_dict()}
    return described


def _describe_checkpoint(path: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    from lstr import checkpoint
    from lstr.extractors.networks.weights_file import read_card
    from lstr.pipelines.features.dataset import training_overlap
    from lstr.pipelines.model_files.networks import recipe_of

    with suppress(WeightsError):  # a file without a network fails below, with the reason
        if card := read_card(path):
            return {"kind": "weights file", **asdict(card), "seen": list(card.seen)}
    loaded = checkpoint.load(path, settings)
    recipe = recipe_of(loaded)
    return {
        "kind": "checkpoint",
        "format": loaded.format,
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "model": loaded.config.kind,
        "preset": loaded.extra.get("preset", "not recorded"),
        **_present(changed=loaded.extra.get("changed")),
        "config": loaded.config.to_dict(),
        **_present(assumed=loaded.assumed),
        "classes": list(loaded.classes),
        "recipe_id": recipe.id if recipe else "not recorded",
        **_present(store=dict(loaded.store)),
        "random_weights": (recipe.random_streams or "none") if recipe else "not recorded",
        **_present(training_videos_seen=training_overlap(loaded)),
        "metrics": loaded.metrics,
        **_present(thresholds=loaded.extra.get("thresholds")),
        "versions": loaded.versions,
    }


def _describe_model_file(path: Path) -> dict[str, Any]:
    from lstr.extractors.networks.weights_file import sha256_of
    from lstr.labels.label_set import actions_of
    from lstr.pipelines.model_files.card import exported_in_words

    model = open_model(path)
    with refusals(path):
        about, extra = model.about, model.about["checkpoint"]["extra"]
        return {
            "kind": "model file",
            "card": model.card(),
            "title": about["title"],
            "format": about["format"],
            **_present(demo=about.get("demo") is True),
            "actions": actions_of(about["classes"]),
            **_present(runs_without_torch=exported_in_words(about) if model.exported is not None else ""),
            "networks": about["networks"],
            "recipe_id": model.recipe.id if about["recipe"] else "features of other programs",
            **_present(store=(extra.get("data") or {}).get("store")),
            "model": about["config"].get("kind"),
            **_present(members=extra.get("members")),
            "preset": extra.get("preset", "not recorded"),
            "split": about.get("split", "not recorded"),
            "data": about.get("data", "not recorded"),
            "measured": about["metrics"] or "not recorded",
            "thresholds": about["thresholds"] or "defaults",
            **_present(folds={f"fold {at}": ids for at, ids in enumerate(about.get("folds") or (), start=1)}),
            "trained_on": list(about["seen"]),
            "bytes": model.path.stat().st_size,
            "sha256": sha256_of(model.path),
            "lstr": about["lstr"],
            "versions": about["checkpoint"]["versions"],
        }
