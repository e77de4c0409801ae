"""The checkpoint or model file that carries its thresholds."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from lstr.checkpoints import checkpoint
from lstr.checkpoints.loaded import Checkpoint
from lstr.pipelines.model_files.model_file import is_model
from lstr.pipelines.model_files.packing import change_thresholds
from lstr.timeline import Thresholds


def write_thresholds(loaded: Checkpoint, thresholds: Mapping[str, Thresholds]) -> Path:
    """Put thresholds into a checkpoint or model file, nothing else of it changed; returns it, which is replaced whole.

    A published file is left as it is: NAME.thresholds.pt beside it gets them. Raises CheckpointError.
    """
    stored = {label: asdict(rules) for label, rules in thresholds.items()}
    if is_model(loaded.path):
        return change_thresholds(loaded.path, stored)
    extra = {**loaded.extra, "thresholds": stored}
    if loaded.format == checkpoint.FORMAT:
        content = checkpoint.read(loaded.path)
        checkpoint.write_atomically(loaded.path, {**content, "extra": json.dumps(extra)})
        return loaded.path
    path = loaded.path.with_name(f"{loaded.path.stem}.thresholds.pt")
    checkpoint.save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra, loaded.calibration)
    return path
