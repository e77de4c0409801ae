"""Texts to vectors by the text encoder of a CLIP, which a file of both encoders holds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.extractors.backbones.clip_networks import import_open_clip, make_clip, split_name
from lstr.extractors.errors import WeightsError
from lstr.extractors.weights.content import read_state_dict
from lstr.extractors.weights.fingerprint import bare_name

SEED = 2021  # of random weights


@torch.inference_mode()
def encode_texts(name: str, path: str | Path | None, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors (N, D) of texts, as long as the encoder makes them; without a file those of random weights.

    name: open_clip's, with or without `clip:`. Raises RecipeError as `clip_config`, MissingPathError or WeightsError
    where the file is none of this CLIP with both encoders, or cannot be read safely.
    """
    open_clip = import_open_clip()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = make_clip(name)
    if path is not None:
        tensors = {bare_name(key): tensor.float() for key, tensor in read_state_dict(path).items()}
        wanted = model.state_dict()
        for key, tensor in wanted.items():
            if key not in tensors:
                raise WeightsError(
                    f"{path} has no {key!r}, so that it cannot encode texts as {name}.",
                    "give the file of the whole CLIP, as open_clip writes it (open_clip_model.safetensors).",
                )
            if tensors[key].shape != tensor.shape:
                shapes = f"{list(tensors[key].shape)} where {name} has {list(tensor.shape)}"
                raise WeightsError(f"{path}: {key} is {shapes}.", "name the CLIP that the file is of.")
        model.load_state_dict({key: tensors[key] for key in wanted})
    tokens = open_clip.get_tokenizer(split_name(name)[0])(list(texts))
    return model.encode_text(tokens).float().numpy()
