"""A small CLIP with random weights, in the layout of open_clip's configs and files."""

import json
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file

NAME = "lstr-tiny"
WIDTH, SIDE = 16, 32
CONFIG = {
    "embed_dim": WIDTH,
    "quick_gelu": True,
    "vision_cfg": {"image_size": SIDE, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": WIDTH, "heads": 2, "layers": 1},
}


def write_tiny_clip(folder: Path) -> Path:
    """Make the small CLIP known to open_clip as `lstr-tiny`; the file of its weights, with both encoders."""
    (folder / f"{NAME}.json").write_text(json.dumps(CONFIG))
    open_clip.add_model_config(folder / f"{NAME}.json")
    path = folder / "open_clip_model.safetensors"
    save_file(tiny_clip().state_dict(), path)
    return path


def tiny_clip() -> open_clip.CLIP:
    """The CLIP itself, as open_clip computes it; the weights are the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return open_clip.CLIP(**CONFIG).eval()
