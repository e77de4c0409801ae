"""Feature stores in published formats, with an action at known times."""

from pathlib import Path

import numpy as np
import torch

FORMATS = ("npy", "npz", "npz packed", "pt")


def write_store(path: Path, form: str, arrays: dict[str, np.ndarray]) -> Path:
    """Write arrays in one of FORMATS; return the folder."""
    path.mkdir(parents=True, exist_ok=True)
    for video, rows in arrays.items():
        if form == "npy":
            np.save(path / f"{video}.npy", rows)
        elif form == "npz":
            np.savez(path / f"{video}.npz", features=rows, frames=np.arange(len(rows)))
        elif form == "npz packed":
            np.savez_compressed(path / f"{video}.npz", rows)
        else:
            torch.save({"features": torch.from_numpy(rows)}, path / f"{video}.pt")
    return path
