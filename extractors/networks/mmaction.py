"""mmaction2: its registry of models, imported only for a config of mmaction2, and the backbones that are allowed.

mmengine imports whatever a config names, as a `_scope_`, a type with dots, or a type that is not registered, and what
it imports runs. A recipe comes with features and checkpoints from anywhere, so nothing reaches mmengine unlisted.
"""

import contextlib
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lstr.errors import ExtractorError, RecipeError

if TYPE_CHECKING:
    from mmengine.registry import Registry


def registry() -> "Registry":
    """mmaction2's registry of models, with the networks of this package that its configs may name.

    Raises ExtractorError when mmaction2 cannot be imported.
    """
    try:
        with quiet():
            import mmaction.models  # noqa: F401  (registers ResNet, TSNHead, Recognizer2D)
            from mmaction.registry import MODELS
            from mmengine.registry import init_default_scope
    except ImportError as error:
        raise ExtractorError(
            f"mmaction2 cannot be imported ({error}).", 'pip install "mmaction2>=1.1,<1.2" "mmcv-lite>=2.0.1,<2.1"'
        ) from error
    from lstr.extractors.networks.bninception import BNInception
    from lstr.extractors.networks.mobile import MobileNetV3Small, ShuffleNetV2

    init_default_scope("mmaction")
    for own in (BNInception, ShuffleNetV2, MobileNetV3Small):
        MODELS.register_module(module=own, force=True)
    return MODELS


def registered(kind: str) -> type:
    """The class that is registered by a name. Raises RecipeError where none is; nothing is imported for it."""
    found = registry().module_dict.get(kind)
    if found is None:
        raise RecipeError(f"mmaction2 has no backbone {kind} here.", 'pip install "mmaction2>=1.1,<1.2"')
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without mmcv-lite's warnings about operators that TSN does not use, and mmengine's log of first weights."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


OWN = ("BNInception", "ShuffleNetV2", "MobileNetV3Small")
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
# Its functions take any, and hand them on; these are data.
TORCHVISION_ARGUMENTS = frozenset(
    ("aux_logits", "dropout", "feature_shape", "init_weights", "memory_efficient", "num_classes", "progress")
) | {"replace_stride_with_dilation", "stochastic_depth_prob", "transform_input", "width_mult", "zero_init_residual"}
LARGEST = 4096  # of a number in it, whatever it counts
WIDEST = 16  # of a factor of all widths
DEEPEST = 4  # of dictionaries and lists in each other
HINT = (
    f"known are {', '.join((*MMACTION, *OWN))} and torchvision's classifiers with plain arguments. Only a config that "
    "a person names (`--set recipe.rgb.network=CONFIG`) is run as a program, and its backbone is one of these too."
)


def check_backbone(config: object) -> None:
    """Raise RecipeError, naming the entry, for a backbone in mmaction2's config language that is not known here.

    Nothing is imported but mmaction2 and torchvision.
    """
    if not isinstance(config, Mapping):
        raise RecipeError("The backbone is no JSON object.", HINT)
    kind = config.get("type")
    named = kind.removeprefix(TORCHVISION) if isinstance(kind, str) else ""
    listed = isinstance(kind, str) and (kind in (*MMACTION, *OWN) or (named != kind and named in _classifiers()))
    if not listed:
        raise RecipeError(f"The backbone is of the type {_shown(kind)}, which is not known here.", HINT)
    for name, value in config.items():
        if name != "type":
            _check_value(str(name), value)
    taken = TORCHVISION_ARGUMENTS if named != kind else _arguments(str(kind))
    unknown = [name for name in config if name != "type" and name not in taken]
    if unknown:
        raise RecipeError(f"The backbone {kind} has an argument {_shown(unknown[0])} that it does not take.", HINT)


def _classifiers() -> list[str]:
    import torchvision.models

    return torchvision.models.list_models(module=torchvision.models)


def _arguments(kind: str) -> set[str]:
    """Names that a registered class takes, those that it hands on to its base classes among them."""
    taken: set[str] = set()
    for cls in registered(kind).__mro__:
        if "__init__" not in vars(cls):
            continue
        found = inspect.signature(vars(cls)["__init__"]).parameters.values()
        taken |= {one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
        if not any(one.kind == one.VAR_KEYWORD for one in found):
            break
    return taken - {"self", *FETCHING}


def _check_value(entry: str, value: Any, depth: int = 0) -> None:
    """Raise RecipeError for a value that is no plain data, or names what is not listed."""
    name = entry.rsplit(".", 1)[-1]
    if name.startswith("_") or name in FETCHING:
        raise RecipeError(f"The backbone has an entry {_shown(entry)}, which no recipe has.", HINT)
    if depth > DEEPEST:
        raise RecipeError(f"The backbone's entry {_shown(entry)} is too deep.", HINT)
    if isinstance(value, Mapping):
        for key, inside in value.items():
            _check_value(f"{entry}.{key}", inside, depth + 1)
        return
    if isinstance(value, list | tuple):
        for inside in value:
            _check_value(entry, inside, depth + 1)
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
        raise RecipeError(f"The backbone's entry {_shown(entry)} is {_shown(value)}, which is not known here.", HINT)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 64 else "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"
