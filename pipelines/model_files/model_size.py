"""Whether the configuration in a model file is that of its tensors, found out without memory for such a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lstr.checkpoints.loaded import TENSORS
from lstr.errors import CheckpointError
from lstr.extractors.weights.archive import AGAIN
from lstr.kinds import from_json, make_model

LONGEST = 1 << 20  # chunks, or the width of a layer: three days, and a thousand times what is usual


def check_size(path: Path, content: Mapping[str, Any], n_classes: int) -> None:
    """Refuse a configuration of a larger model than its tensors, before memory for it is allocated.

    `content` is that of the checkpoint's own file. Raises CheckpointError, and ConfigError for a configuration that is
    none.
    """
    config, tensors = from_json(content["config"]), content[TENSORS]
    sizes = [value for value in vars(config).values() if isinstance(value, int)]
    sound = max(sizes) <= LONGEST and config.l_enc + config.l_dec <= len(tensors)
    if sound:
        with torch.device("meta"), _Unfilled():
            wanted = {name: tensor.shape for name, tensor in make_model(config, n_classes).state_dict().items()}
        sound = wanted == {name: tensor.shape for name, tensor in tensors.items()}
    if not sound:
        raise CheckpointError(f"The configuration in {path} is of another model than its tensors.", AGAIN)


class _Unfilled(TorchFunctionMode):
    """Tensors are not filled while it lasts: those without memory need no numbers, and asking torch for such imports
    its compiler, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        filled = name.endswith("_") and not name.startswith("_")
        if args and (filled or name in ("exp", "mul", "sin", "cos")):
            return args[0]
        if func is torch.arange:
            return torch.empty(len(range(*args)), **(kwargs or {}))
        return func(*args, **(kwargs or {}))
