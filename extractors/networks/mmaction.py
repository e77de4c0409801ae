"""Use a 2D recogniser of mmaction2 as the network of a stream, from its config file.

The config defines the backbone and the scale of its input. The head is dropped, and the backbone's maps are averaged
over space. A recipe stores the backbone, so that the same features can be computed without the config.

mmengine imports every module that `_scope_` or `type` of a config names, which executes code. This is acceptable for a
config that the user names. A recipe may come from an untrusted source, so its backbone is checked before mmengine reads
it.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from lstr.errors import ExtractorError, MissingPathError, RecipeError, first_line, install_hint
from lstr.extractors.networks.network import CHANNELS, Input, Network, quiet, torchvision_name
from lstr.extractors.streams import model_stream
from lstr.files.names import slug

try:
    with quiet():
        import mmaction.models  # noqa: F401  (registers the backbones)
        from mmaction.models.recognizers import Recognizer2D
        from mmengine.config import Config
        from mmengine.registry import init_default_scope
except ImportError as fault:
    raise ExtractorError(f"mmaction2 cannot be imported ({fault}).", install_hint("learn")) from fault

CONFIGS = "name the config of a 2D recogniser, such as mmaction2's configs/recognition/tsn/*.py."
SIDE = 224  # pixels of the image that shows the number of features; some backbones accept no other size
NAME_LENGTH = 128  # characters; the names of mmaction2's configs are long
TORCHVISION = "torchvision."
BACKBONES = ("ResNet", "MobileNetV2")  # backbones of mmaction2 for single images
# allowed types of their convolutions, norms and activations
LAYERS = ("Conv", "Conv2d", "BN", "BN2d", "SyncBN", "GN", "IN", "LN", "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU")
# arguments that make a backbone read or download weights
FETCHING = ("pretrained", "weights", "init_cfg", "checkpoint_path")
LARGEST = 4096  # maximum of numbers in a backbone, so that it cannot exhaust the memory
WIDEST = 16  # maximum factor of all widths
ACCEPTED_HINT = f"choose {', '.join(BACKBONES)} or a classifier of torchvision, with numbers and names as arguments."


class RecogniserMaps(Recognizer2D):
    """A recogniser of mmaction2 that returns the maps of its backbone."""

    def forward(self, x: Tensor) -> Tensor:
        """Return maps (B, D, h, w) of images (B, C, H, W)."""
        return self.extract_feat(x[:, None], stage="backbone")[0]


def read_recogniser(config_path: str, stream: str) -> Network:
    """Execute an mmaction2 config file, and return the network that it defines.

    Raises MissingPathError for a missing file, and RecipeError for a config without a 2D recogniser for the stream.
    """
    if not Path(config_path).is_file():
        raise MissingPathError(f"{config_path} does not exist.", CONFIGS)
    try:
        with quiet():
            config = Config.fromfile(config_path)
    except Exception as error:  # a config is a program, and can raise any type
        raise RecipeError(f"{config_path} is not a config of mmaction2 ({first_line(error)}).", CONFIGS) from error
    model = config.get("model")
    is_2d = isinstance(model, Mapping) and model.get("type") == "Recognizer2D" and not model.get("neck")
    if not is_2d or not isinstance(model.get("backbone"), Mapping):
        raise RecipeError(f"{config_path} does not define a Recognizer2D with a backbone and no neck.", CONFIGS)
    try:
        backbone = json.loads(json.dumps({k: v for k, v in model["backbone"].items() if k not in FETCHING}))
    except TypeError as error:
        raise RecipeError(f"The backbone of {config_path} is not plain data ({error}).", CONFIGS) from error
    # built first, because its first layer shows the number of channels
    network = build_recogniser(backbone)
    channels = next((tensor.shape[1] for tensor in network.state_dict().values() if tensor.dim() == 4), 0)
    if CHANNELS.get(channels) != model_stream(stream):
        sentence = f"The backbone of {config_path} takes {channels} channels, which the {stream} stream does not have."
        raise RecipeError(sentence, "choose another config: frames have 3 channels, flow has in_channels=10.")
    # mmaction2 1.x stores the input scale in the model, 0.x next to it
    scale = model.get("data_preprocessor") or config.get("img_norm_cfg") or {}
    if not scale.get("mean") or not scale.get("std"):
        raise RecipeError(f"{config_path} has no mean and std of its input.", "add them to its data_preprocessor.")
    # decoded frames are RGB, so to_rgb (1.x) and to_bgr (0.x) swap red and blue
    bgr = bool(scale.get("to_rgb") if "data_preprocessor" in model else scale.get("to_bgr"))
    try:
        # configs for flow have one number for x and one for y
        mean, std = (tuple(map(float, scale[name])) * max(1, channels // len(scale[name])) for name in ("mean", "std"))
        with torch.no_grad():
            width = network(torch.zeros(1, channels, SIDE, SIDE)).shape[1]
    except Exception as error:  # a backbone with several outputs returns a tuple; other failures have other types
        raise RecipeError(f"The backbone of {config_path} cannot be used ({first_line(error)}).", CONFIGS) from error
    entry = describe_backbone(slug(Path(config_path).stem, "network", NAME_LENGTH), backbone)
    return replace(entry, width=width, inputs={model_stream(stream): Input(mean, std, bgr)})


def describe_backbone(name: str, backbone: dict) -> Network:
    """Return the network of a recipe's backbone; its training cost is assumed to equal a ResNet-50's."""
    rename = str if str(backbone.get("type")).startswith(TORCHVISION) else torchvision_name
    # the config has the number of channels
    return Network(name, 0, lambda _: build_recogniser(backbone), {}, "", config=backbone, rename=rename, fuses=False)


def build_recogniser(backbone: Mapping) -> nn.Module:
    """Build mmaction2's recogniser without a head: images (B, C, H, W) → maps (B, D, h, w). No weights are loaded.

    Raises RecipeError if the backbone could import, download or read something, could exhaust the memory, or cannot be
    built.
    """
    import torchvision.models

    kind = backbone.get("type")
    named = kind.removeprefix(TORCHVISION) if isinstance(kind, str) else ""
    is_classifier = named != kind and named in torchvision.models.list_models(module=torchvision.models)
    if kind not in BACKBONES and not is_classifier:
        raise RecipeError(f"The type {str(kind)[:40]!r} of the backbone is unknown.", ACCEPTED_HINT)
    pending = [(name, value) for name, value in backbone.items() if name != "type"]
    while pending:
        name, value = pending.pop()
        is_valid = not name.startswith("_") and name not in FETCHING
        if isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, list | tuple):
            pending += [(name, part) for part in value]
        elif name == "type":
            is_valid = isinstance(value, str) and value in LAYERS
        elif isinstance(value, str):
            is_valid &= value.replace("_", "").isalnum()  # a mode; URLs, paths and modules contain other characters
        elif isinstance(value, int | float):
            is_valid &= abs(value) <= (WIDEST if name in ("widen_factor", "width_mult") else LARGEST)
        if not is_valid:
            raise RecipeError(
                f"The backbone {kind} has an entry {name[:40]!r} that recipes do not allow.", ACCEPTED_HINT
            )
    init_default_scope("mmaction")
    try:
        with quiet():
            # a copy, because mmaction2 removes entries
            return RecogniserMaps(backbone=copy.deepcopy(dict(backbone))).eval()
    except Exception as error:  # layers raise different types for wrong arguments
        raise RecipeError(
            f"The backbone {kind} cannot be built ({first_line(error)}).", "correct its config."
        ) from error
