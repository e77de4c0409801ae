"""Any 2D recogniser of mmaction2 as the network of a stream, by its config: other backbones need no code.

The config has the backbone and the scale of its input; its head is left out, and the backbone's maps are averaged over
space. A backbone that looks at several frames together (TSM, TIN, TANet) sees a chunk as mmaction2 sees a video
of six frames: its segments are spread over the chunk, and their features averaged.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmaction.models.recognizers import Recognizer2D
from mmengine.config import Config
from torch import Tensor, nn

from lstr.errors import MissingPathError, RecipeError, first_line
from lstr.extractors.networks.mmaction import FETCHING, TORCHVISION, check_backbone, quiet, registry
from lstr.extractors.networks.network import CHANNELS, RESNET50_COST, Input, Network, torchvision_name
from lstr.extractors.streams import model_stream
from lstr.files.names import slug

# A number per channel.
Channels = tuple[float, ...]

SIDE = 64  # pixels of the image by which a backbone's output is measured
LONGEST = 128  # characters of a network's name: those of mmaction2's configs are long
HINT = "name the config of a 2D recogniser, as mmaction2's configs/recognition/tsn/*.py."


class RecogniserMaps(Recognizer2D):
    """A 2D recogniser without its head: images (B, C, H, W) → maps (B, D, h, w), torchvision's and timm's pooled."""

    def forward(self, x: Tensor) -> Tensor:
        """What the backbone makes, as mmaction2 runs it."""
        return self.extract_feat(x[:, None], stage="backbone")[0]


def read_recogniser(config_name: str, stream: str) -> Network:
    """A network of one stream by its mmaction2 config: a path, or the name of a config that comes with mmaction2.

    Raises MissingPathError when there is none, RecipeError when it is no 2D recogniser for that stream.
    """
    path = find_config(config_name)
    try:
        with quiet():
            config = Config.fromfile(str(path))
    except FileNotFoundError as error:
        raise MissingPathError(f"{config_name} builds on a config that does not exist ({error}).", HINT) from error
    except Exception as error:  # a config is a program
        raise RecipeError(f"{config_name} is no mmaction2 config ({first_line(error)}).", HINT) from error
    model = config.get("model")
    if not isinstance(model, Mapping) or "backbone" not in model:
        raise RecipeError(f"{config_name} has no model with a backbone.", HINT)
    kind = _name(model.get("type"))
    if kind != "Recognizer2D":
        raise RecipeError(f"{config_name} is a {kind}, which takes no single frames.", HINT)
    if model.get("neck"):
        raise RecipeError(f"{config_name} has a neck, which needs several maps of the backbone.", HINT)
    backbone = _plain(path, model["backbone"])
    built = build_recogniser(backbone)
    channels = next((w.shape[1] for w in built.state_dict().values() if w.dim() == 4), 0)
    trained_for = model_stream(stream)
    if CHANNELS.get(channels) != trained_for:
        takes = {0: "no images", 3: "frames", 10: "five flow fields"}.get(channels, f"{channels} channels")
        wanted = {"rgb": "frames (3 channels)", "flow": "five flow fields (in_channels=10)"}[trained_for]
        sentence = f"{config_name} takes {takes}, the {trained_for} stream has {wanted}."
        raise RecipeError(sentence, "choose another config.")
    scale = _scale(path, config, model, channels)
    segments = getattr(built.backbone, "num_segments", None) or 1
    if stream != "rgb" and segments > 1:
        raise RecipeError(f"{config_name} looks at {segments} segments, and a chunk has {stream} for one.", HINT)
    name = slug(path.stem, "network", LONGEST)
    width = _width(path, built, channels, segments)
    return replace(described(name, backbone), width=width, inputs={trained_for: scale}, segments=segments)


def described(name: str, backbone: dict) -> Network:
    """The entry of a backbone in mmaction2's config language, as far as it says; it costs what a ResNet-50 does."""
    own_names = str(backbone.get("type")).startswith(TORCHVISION)
    rename = str if own_names else torchvision_name
    build = partial(_build_for, backbone)
    return Network(name, 0, build, {}, RESNET50_COST, "", config=backbone, rename=rename, fuses=False)


def _build_for(backbone: dict, channels: int) -> nn.Module:
    return build_recogniser(backbone)  # which says itself how many it takes


def find_config(name: str) -> Path:
    """The file of a config: one of mmaction2's by its name, which has no ending, or a path. Raises MissingPathError."""
    if Path(name).is_file() and Path(name).suffix:
        return Path(name)
    registry()
    import mmaction

    shipped = Path(mmaction.__file__).parent / ".mim" / "configs"
    found = sorted(shipped.rglob(f"{Path(name).stem}.py")) if name == Path(name).name else []
    if not found:
        raise MissingPathError(
            f"{name} is neither a file nor a config of mmaction2.",
            "name resnet50, bninception, the path of a config, or the name of one in mmaction2's configs/recognition.",
        )
    return found[0]


def build_recogniser(backbone: Mapping) -> RecogniserMaps:
    """A recogniser around a backbone in mmaction2's config language, in evaluation mode, with no weights loaded.

    Raises RecipeError when it cannot be built here, or is none of those that `check_backbone` knows.
    """
    check_backbone(backbone)
    registry()
    try:
        with quiet():
            network = RecogniserMaps(backbone=copy.deepcopy(dict(backbone)))  # mmaction2 takes entries out of it
    except Exception as error:  # arguments of other values fail in as many ways as there are layers
        raise RecipeError(
            f"The backbone {backbone.get('type')} cannot be built here ({first_line(error)}).",
            "install what registers it, or correct its config.",
        ) from error
    network.eval()
    return network


def _plain(path: Path, backbone: Mapping) -> dict:
    """A backbone's config as JSON has it."""
    try:
        return json.loads(json.dumps(_without_fetching({**backbone, "type": _name(backbone.get("type"))})))
    except TypeError as error:
        raise RecipeError(f"The backbone of {path} is not plain data ({error}).", HINT) from error


def _without_fetching(config: Any) -> Any:
    """A copy of a config, and of all in it, without where first weights would be fetched from."""
    if isinstance(config, Mapping):
        return {name: _without_fetching(value) for name, value in config.items() if name not in FETCHING}
    return [_without_fetching(value) for value in config] if isinstance(config, list | tuple) else config


def _name(kind: object) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _scale(path: Path, config: Mapping, model: Mapping, channels: int) -> Input:
    """How it is given images: 1.x has that in the model, 0.x beside it."""
    scale = model.get("data_preprocessor") or config.get("img_norm_cfg") or {}

    def per_channel(name: str) -> Channels:
        if not scale.get(name):
            raise RecipeError(f"{path} does not state the {name} of its input.", "add it to its data_preprocessor.")
        values = tuple(float(v) for v in scale[name])
        return values * (channels // len(values)) if channels % len(values) == 0 else values

    # decoded frames are RGB, so what a config calls to_rgb (1.x) or to_bgr (0.x) turns them round
    bgr = bool(scale.get("to_rgb") if "data_preprocessor" in model else scale.get("to_bgr"))
    return Input(per_channel("mean"), per_channel("std"), bgr)


@torch.no_grad()
def _width(path: Path, network: nn.Module, channels: int, segments: int) -> int:
    """Features that a backbone makes of an image, by trying one."""
    for side in (SIDE, 224):  # some take one size only
        try:
            made = network(torch.zeros(segments, channels, side, side))
        except (ImportError, RuntimeError, ValueError, AssertionError) as error:
            failed = first_line(error)
        else:
            if isinstance(made, Tensor) and made.dim() == 4 and len(made) == segments:
                return made.shape[1]
            failed = "it makes several maps, or maps over time"
    raise RecipeError(f"The backbone of {path} cannot be used ({failed}).", HINT)
