"""Any 2D recogniser of mmaction2 as the network of a stream, by its config: other backbones need no code.

The config has the backbone and the scale of its input; its head is dropped, and the backbone's maps are averaged over
space. A backbone that looks at several frames together (TSM, TIN, TANet) sees a chunk as mmaction2 sees a video of six
frames: its segments are spread over the chunk, and their features averaged.

mmengine imports whatever a config names, as a `_scope_`, a type with dots, or a type that is not registered, and what
it imports runs. A recipe comes with features and checkpoints from anywhere, so nothing reaches mmengine unlisted.
"""

import copy
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lstr.errors import ExtractorError, MissingPathError, RecipeError, first_line
from lstr.extractors.networks.network import CHANNELS, RESNET50_COST, Input, Network, quiet, torchvision_name
from lstr.extractors.streams import model_stream
from lstr.files.names import slug

if TYPE_CHECKING:
    from mmengine.registry import Registry

INSTALL = 'pip install "mmaction2>=1.1,<1.2" "mmcv-lite>=2.0.1,<2.1"'
CONFIGS = "name the config of a 2D recogniser, as mmaction2's configs/recognition/tsn/*.py."
SIDES = (64, 224)  # pixels of the image by which a backbone's output is measured; some take one size only
LONGEST_NAME = 128  # characters: those of mmaction2's configs are long

# mmaction2's backbones of single images.
MMACTION = ("ResNet", "ResNetTSM", "ResNetTIN", "TANet", "MobileNetV2", "MobileNetV2TSM")
TORCHVISION = "torchvision."
# Layers that a backbone's convolution, norm or activation may be.
PARTS = (
    *("Conv", "Conv2d", "Conv3d"),
    *("BN", "BN2d", "BN3d", "SyncBN", "GN", "IN", "IN2d", "LN"),
    *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "GELU", "SiLU", "Swish", "HSwish", "HSigmoid"),
    *("Sigmoid", "Tanh"),
)
# Arguments by which a backbone would read or download its first weights.
FETCHING = ("pretrained", "weights", "init_cfg", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")
# torchvision's functions take any argument, and hand it on; these are data.
TORCHVISION_ARGUMENTS = frozenset(
    ("aux_logits", "dropout", "feature_shape", "init_weights", "memory_efficient", "num_classes", "progress")
) | {"replace_stride_with_dilation", "stochastic_depth_prob", "transform_input", "width_mult", "zero_init_residual"}
LARGEST = 4096  # of a number in a backbone's config, whatever it counts
WIDEST = 16  # of a factor of all widths
DEEPEST = 4  # of dictionaries and lists in each other
KNOWN = (
    f"known are {', '.join(MMACTION)} and torchvision's classifiers with plain arguments. Only a config that "
    "a person names (`--set recipe.rgb.network=CONFIG`) is run as a program, and its backbone is one of these too."
)


def registry() -> "Registry":
    """Return mmaction2's registry of models. Raises ExtractorError when mmaction2 cannot be imported."""
    try:
        with quiet():
            import mmaction.models  # noqa: F401  (registers ResNet, TSNHead, Recognizer2D)
            from mmaction.registry import MODELS
            from mmengine.registry import init_default_scope
    except ImportError as error:
        raise ExtractorError(f"mmaction2 cannot be imported ({error}).", INSTALL) from error
    init_default_scope("mmaction")
    return MODELS


def read_recogniser(config_name: str, stream: str) -> Network:
    """Return a network of one stream by its mmaction2 config: a path, or the name of a config of mmaction2.

    Raises MissingPathError when there is none, RecipeError when it is no 2D recogniser for that stream.
    """
    registry()
    from mmengine.config import Config

    path = find_config(config_name)
    try:
        with quiet():
            config = Config.fromfile(str(path))
    except FileNotFoundError as error:
        raise MissingPathError(f"{config_name} builds on a config that does not exist ({error}).", CONFIGS) from error
    except Exception as error:  # a config is a program
        raise RecipeError(f"{config_name} is no mmaction2 config ({first_line(error)}).", CONFIGS) from error
    model = config.get("model")
    if not isinstance(model, Mapping) or "backbone" not in model:
        raise RecipeError(f"{config_name} has no model with a backbone.", CONFIGS)
    kind = _type_name(model.get("type"))
    if kind != "Recognizer2D":
        raise RecipeError(f"{config_name} is a {kind}, which takes no single frames.", CONFIGS)
    if model.get("neck"):
        raise RecipeError(f"{config_name} has a neck, which needs several maps of the backbone.", CONFIGS)
    try:
        named = {**model["backbone"], "type": _type_name(model["backbone"].get("type"))}
        backbone = json.loads(json.dumps(_without_fetching(named)))
    except TypeError as error:
        raise RecipeError(f"The backbone of {path} is not plain data ({error}).", CONFIGS) from error
    built = build_recogniser(backbone)
    channels = next((w.shape[1] for w in built.state_dict().values() if w.dim() == 4), 0)
    trained_for = model_stream(stream)
    if CHANNELS.get(channels) != trained_for:
        takes = {0: "no images", 3: "frames", 10: "five flow fields"}.get(channels, f"{channels} channels")
        wanted = {"rgb": "frames (3 channels)", "flow": "five flow fields (in_channels=10)"}[trained_for]
        sentence = f"{config_name} takes {takes}, the {trained_for} stream has {wanted}."
        raise RecipeError(sentence, "choose another config.")
    # mmaction2 1.x has the scale of the input in the model, 0.x next to it
    scale = model.get("data_preprocessor") or config.get("img_norm_cfg") or {}
    numbers = []
    for name in ("mean", "std"):
        if not scale.get(name):
            raise RecipeError(f"{path} does not state the {name} of its input.", "add it to its data_preprocessor.")
        values = tuple(float(v) for v in scale[name])
        numbers.append(values * (channels // len(values)) if channels % len(values) == 0 else values)
    # decoded frames are RGB, so what a config calls to_rgb (1.x) or to_bgr (0.x) turns them round
    bgr = bool(scale.get("to_rgb") if "data_preprocessor" in model else scale.get("to_bgr"))
    segments = getattr(built.backbone, "num_segments", None) or 1
    if stream != "rgb" and segments > 1:
        raise RecipeError(f"{config_name} looks at {segments} segments, and a chunk has {stream} for one.", CONFIGS)
    width = _width(path, built, channels, segments)
    entry = described(slug(path.stem, "network", LONGEST_NAME), backbone)
    return replace(entry, width=width, inputs={trained_for: Input(numbers[0], numbers[1], bgr)}, segments=segments)


def described(name: str, backbone: dict) -> Network:
    """Return the entry of a backbone in mmaction2's config language, as far as it says; its cost is a ResNet-50's."""
    own_names = str(backbone.get("type")).startswith(TORCHVISION)
    rename = str if own_names else torchvision_name
    build = partial(_build_for, backbone)
    return Network(name, 0, build, {}, RESNET50_COST, "", config=backbone, rename=rename, fuses=False)


def _build_for(backbone: dict, channels: int) -> nn.Module:
    return build_recogniser(backbone)  # the config says how many channels it takes


def find_config(name: str) -> Path:
    """Return the file of a config: one of mmaction2's by its name, which has no ending, or a path.

    Raises MissingPathError.
    """
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


def build_recogniser(backbone: Mapping) -> Any:
    """Build a recogniser around a backbone in mmaction2's config language, in evaluation mode, with no weights loaded.

    It has no head: images (B, C, H, W) → maps (B, D, h, w), torchvision's and timm's pooled. Raises RecipeError when
    it cannot be built here, or is unknown to `check_backbone`.
    """
    check_backbone(backbone)
    registry()
    from mmaction.models.recognizers import Recognizer2D

    class RecogniserMaps(Recognizer2D):
        def forward(self, x: Tensor) -> Tensor:
            return self.extract_feat(x[:, None], stage="backbone")[0]

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


def _without_fetching(config: Any) -> Any:
    """Return a copy of a config, and of all in it, without where first weights would be fetched from."""
    if isinstance(config, Mapping):
        return {name: _without_fetching(value) for name, value in config.items() if name not in FETCHING}
    return [_without_fetching(value) for value in config] if isinstance(config, list | tuple) else config


def _type_name(kind: object) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


@torch.no_grad()
def _width(path: Path, network: nn.Module, channels: int, segments: int) -> int:
    """Return the number of features that a backbone makes of an image, by trying one."""
    for side in SIDES:
        try:
            made = network(torch.zeros(segments, channels, side, side))
        except (ImportError, RuntimeError, ValueError, AssertionError) as error:
            failed = first_line(error)
        else:
            if isinstance(made, Tensor) and made.dim() == 4 and len(made) == segments:
                return made.shape[1]
            failed = "it makes several maps, or maps over time"
    raise RecipeError(f"The backbone of {path} cannot be used ({failed}).", CONFIGS)


def check_backbone(config: object) -> None:
    """Raise RecipeError, naming the entry, for a backbone in mmaction2's config language that is unknown here.

    Nothing is imported but mmaction2 and torchvision.
    """
    import torchvision.models

    if not isinstance(config, Mapping):
        raise RecipeError("The backbone is no JSON object.", KNOWN)
    kind = config.get("type")
    named = kind.removeprefix(TORCHVISION) if isinstance(kind, str) else ""
    is_classifier = named != kind and named in torchvision.models.list_models(module=torchvision.models)
    if kind not in MMACTION and not is_classifier:
        raise RecipeError(f"The backbone is of the type {_shown(kind)}, which is not known here.", KNOWN)
    for name, value in config.items():
        if name != "type":
            _check_value(str(name), value)
    taken = {*TORCHVISION_ARGUMENTS}
    if not is_classifier:
        found = registry().module_dict.get(kind)
        if found is None:
            raise RecipeError(f"mmaction2 has no backbone {kind} here.", INSTALL)
        taken = set()
        for cls in found.__mro__:  # with the arguments that it hands on to its base classes
            if "__init__" in vars(cls):
                parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
                taken |= {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
                if not any(one.kind == one.VAR_KEYWORD for one in parameters):
                    break
        taken -= {"self", *FETCHING}
    unknown = [name for name in config if name != "type" and name not in taken]
    if unknown:
        raise RecipeError(f"The backbone {kind} has an argument {_shown(unknown[0])} that it does not take.", KNOWN)


def _check_value(entry: str, value: Any, depth: int = 0) -> None:
    """Raise RecipeError for a value that is not plain data, or names what is not listed."""
    name = entry.rsplit(".", 1)[-1]
    if name.startswith("_") or name in FETCHING:
        raise RecipeError(f"The backbone has an entry {_shown(entry)}, which no recipe has.", KNOWN)
    if depth > DEEPEST:
        raise RecipeError(f"The backbone's entry {_shown(entry)} is too deep.", KNOWN)
    if isinstance(value, Mapping | list | tuple):
        parts = value.items() if isinstance(value, Mapping) else (("", part) for part in value)
        for key, inside in parts:
            _check_value(f"{entry}.{key}" if isinstance(value, Mapping) else entry, inside, depth + 1)
        return
    if name == "type":
        fits = isinstance(value, str) and value in PARTS
    elif isinstance(value, str):
        fits = value.replace("_", "").isalnum()  # a mode, and no address, path or name of a module
    elif isinstance(value, int | float):
        fits = abs(value) <= (WIDEST if name in ("widen_factor", "width_mult") else LARGEST)
    else:
        fits = value is None
    if not fits:
        raise RecipeError(f"The backbone's entry {_shown(entry)} is {_shown(value)}, which is not known here.", KNOWN)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 64 else "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"
