"""mmaction2's registry of models, imported where a config of mmaction2 is meant and nowhere else."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    from lstr.extractors.backbones.bninception import BNInception
    from lstr.extractors.backbones.mobile import MobileNetV3Small, ShuffleNetV2

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
