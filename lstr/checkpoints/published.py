"""Checkpoints of published code: our names for their tensors, and the configuration that follows from shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lstr.config import (
    CMERT,
    COLAR,
    FATS,
    GATEHUB,
    IDN,
    MAT,
    MINIROAD,
    OADTR,
    TESTRA,
    TRN,
    WOAD,
    LSTRConfig,
    override,
)
from lstr.errors import CheckpointError, ConfigError
from lstr.labels.label_set import BACKGROUND, THUMOS_CLASSES
from lstr.layers.renaming import with_prefixes
from lstr.models.lstr.testra import PUBLISHED_NAMES as TESTRA_NAMES
from lstr.models.recurrent import fats, woad
from lstr.models.recurrent.miniroad import PUBLISHED_NAMES as MINIROAD_NAMES
from lstr.models.recurrent.recurrent import PUBLISHED_NAMES as TRN_NAMES
from lstr.models.windowed import colar, gatehub, idn, oadtr

INPUT_DIMS = {3072: (2048, 1024), 4096: (2048, 2048), 2048: (2048, 0), 1024: (0, 1024)}
"""rgb and flow widths by their sum, for published checkpoints, which hold only the sum."""


LSTR_SIZES = {
    "d_feedforward": ("dec_modules.layers.0.linear1.weight", 0),
    "n0": ("enc_queries.0.weight", 0),
    "n1": ("enc_queries.1.weight", 0),
    "anticipation": ("future_tokens.weight", 0),
}
FORESIGHT_SIZES = {
    "rgb_dim": ("feature_head_work.visual_linear.0.weight", 1),
    "flow_dim": ("feature_head_work.motion_linear.0.weight", 1),
    "d_feedforward": ("dec_modules.layers.0.linear1.weight", 0),
    "n0": ("enc_queries.0.weight", 0),
    "future": ("final_query.weight", 0),
    "n_generated": ("gen_query.weight", 0),
}
SIZES = {
    "lstr": LSTR_SIZES,
    "testra": LSTR_SIZES,
    "miniroad": {"d_feedforward": ("feature_head_work.input_linear.0.weight", 0)},
    "gatehub": {
        "d_feedforward": ("gated.linear1.weight", 0),
        "n0": ("latents", 0),
        "work_length": ("present_positions.weight", 0),
    },
    "oadtr": {"d_feedforward": ("encoder.0.linear1.weight", 0), "n_ahead": ("queries", 0)},
    "colar": {"exemplars": ("exemplars", 1)},
    "trn": {"d_token": ("feature_head_work.input_linear.0.weight", 0)},
    "cmert": FORESIGHT_SIZES | {"n1": ("enc_queries.1.weight", 0)},
    "mat": FORESIGHT_SIZES,
    "idn": {},
    "fats": {"d_model": ("action_cell.weight_hh", 1), "input_dim": ("action_cell.weight_ih", 1)},
    "woad": {"d_feedforward": ("feature_head_work.input_linear.0.weight", 0)},
}
"""By kind, the tensor and its axis that give a setting."""
NEEDED = {"lstr": ("d_feedforward", "l_dec"), "miniroad": ("d_feedforward",)}
NEEDED["testra"] = NEEDED["lstr"]
NEEDED |= {"gatehub": ("d_feedforward", "n0", "work_length", "n_long"), "colar": ("exemplars",), "trn": ("d_token",)}
NEEDED |= {"idn": (), "fats": (), "woad": ("d_feedforward",)}
NEEDED["oadtr"] = ("d_feedforward", "n_ahead", "work_length")
NEEDED["cmert"] = NEEDED["mat"] = ("d_feedforward", "l_dec", "l_enc", "n0", "future", "n_generated")
UNKNOWN: dict[str, tuple[str, ...]] = {
    "lstr": ("n_heads", "work_length", "long_length", "long_stride"),
    "testra": ("n_heads", "work_length", "long_length", "long_stride", "decay"),
    "miniroad": (),
    "gatehub": ("n_heads",),
    "oadtr": ("n_heads", "decoder_heads"),
    "colar": ("work_length",),
    "trn": ("anticipation",),
    "cmert": ("n_heads", "work_length", "long_length", "long_stride", "context", "anticipation"),
    "mat": ("n_heads", "work_length", "long_length", "long_stride", "groups", "anticipation"),
    "idn": ("work_length",),
    "fats": ("work_length", "generated", "runs"),
    "woad": (),
}
"""By kind, what no tensor tells."""
OWN_TENSORS = {
    "feature_head_work.input_linear.1.weight": "miniroad",
    "latents": "gatehub",
    "class_token": "oadtr",
    "exemplars": "colar",
    "accumulator.weight_ih": "trn",
    "reset_newest.weight": "idn",
    "imagined.weight": "fats",
    "video_classifier.weight": "woad",
}
"""Tensors of our names that one kind alone has."""
RENAMED: dict[str, Callable[[Mapping[str, Tensor]], dict[str, Tensor]]] = {
    "gate_layer.weight": gatehub.renamed,
    "decoder_cls_token": oadtr.renamed,
    "model_static.conv1_3_k.weight": colar.renamed,
    "enc_cell.weight_ih": lambda tensors: with_prefixes(tensors, TRN_NAMES),
    idn.KERNEL: idn.renamed,
    "fc_feature.weight": fats.renamed,
    "enc_lstm.weight_ih": woad.renamed,
}
"""By a tensor that the published code of one kind alone has, its tensors under our names."""


def tables_of(content: Any) -> Any:
    """The one table of tensors in what published code saves, else `content`.

    OadTR's and GateHUB's code save it as `model`, Colar's as two, `model_static` and `model_dynamic`, to which
    somebody has added `exemplars`; others save it bare.
    """
    if not isinstance(content, dict):
        return content
    parts = {name: content[name] for name in ("model_static", "model_dynamic") if isinstance(content.get(name), dict)}
    if len(parts) == 2:
        found = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        return {**found, **({"exemplars": content["exemplars"]} if "exemplars" in content else {})}
    inner = content.get("model")
    return inner if isinstance(inner, dict) else content


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published tensors under our names; those of LSTR are ours already. Raises CheckpointError."""
    if all(name.startswith("module.") for name in tensors):  # of training on several GPUs
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    for own, rename in RENAMED.items():
        if own in tensors:
            try:
                return rename(tensors)
            except (LookupError, RuntimeError, TypeError) as error:
                raise CheckpointError(
                    f"A published tensor is missing, or has another shape ({error}).", "Fetch or copy the file again."
                ) from error
    names = MINIROAD_NAMES if {"layer1.0.weight", "gru.weight_ih_l0"} <= set(tensors) else TESTRA_NAMES
    return with_prefixes(tensors, names)


def told_by_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Settings that the published names of tensors tell: those of a TeSTra that anticipates its kind."""
    return {"kind": "testra"} if any(name.startswith(tuple(TESTRA_NAMES)) for name in tensors) else {}


def kind_of(tensors: Mapping[str, Tensor]) -> str:
    """The kind of model that tensors of our names are of, `lstr` where nothing speaks for another.

    Those of a TeSTra are named and shaped as an LSTR's, so nothing does but what `told_by_names` finds.
    """
    if "gen_query.weight" in tensors:
        return "cmert" if "enc_queries.1.weight" in tensors else "mat"
    return next((kind for own, kind in OWN_TENSORS.items() if own in tensors), "lstr")


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Configuration that follows from the shapes of tensors: those of d_model, input_dim, n_classes and of `SIZES`
    whose tensors exist; of an LSTR or a TeSTra also l_enc, l_dec, and long_memory, 1 or 0; of a CMeRT or a MAT l_enc,
    l_dec and l_gen; of a MiniROAD also anticipation; of a GateHUB or an OadTR l_enc and l_dec, of the one n_long, of
    the other work_length."""
    kind = kind_of(tensors)
    sizes = {
        "n_classes": ("classifier.weight", 0),
        "d_model": ("classifier.weight", 1),
        "input_dim": ("feature_head_work.input_linear.0.weight", 1),
        **SIZES[kind],
    }
    found = {
        name: tensors[key].shape[axis] for name, (key, axis) in sizes.items() if key in tensors and tensors[key].ndim
    }
    if kind == "miniroad":
        ahead = len(tensors["anticipate.weight"]) if "anticipate.weight" in tensors else 0
        return {**found, "anticipation": ahead // max(1, found.get("d_model", 1))}
    if kind in ("cmert", "mat"):
        found = {"rgb_dim": 0, "flow_dim": 0} | found
        found["input_dim"] = found["rgb_dim"] + found["flow_dim"]
        if kind == "mat":
            found["refinements"] = len({key.split(".")[1] for key in tensors if key.startswith("work_fusions.")})
    stacks = {"l_enc": "enc_modules.1.layers.", "l_dec": "dec_modules.layers.", "l_gen": "gen_layer.layers."}
    if kind in ("gatehub", "oadtr"):
        stacks = {"l_enc": "encoder.", "l_dec": "decoder."}
    for name, prefix in stacks.items():
        layers = {key.removeprefix(prefix).split(".")[0] for key in tensors if key.startswith(prefix)}
        if layers:
            found[name] = len(layers)
    if kind == "gatehub" and "history_positions.weight" in tensors:
        found["n_long"] = len(tensors["history_positions.weight"]) - found.get("work_length", 0)
    elif kind == "oadtr" and "positions.weight" in tensors:
        found["work_length"] = len(tensors["positions.weight"]) - 1
    return {**found, "long_memory": int("enc_queries.0.weight" in tensors)} if kind == "lstr" else found


def published_config(path: Path, tensors: Mapping[str, Tensor], overrides: Mapping[str, Any]) -> LSTRConfig:
    """The configuration that shapes and `overrides` give; a TeSTra is one by its `kind` there.

    Raises CheckpointError and ConfigError.
    """
    found, kind = shapes_of(tensors), kind_of(tensors)
    if kind == "lstr" and overrides.get("kind") == "testra":
        kind = "testra"
    missing = [name for name in ("d_model", "input_dim", *NEEDED[kind]) if name not in found]
    if missing:
        raise CheckpointError(
            f"{path} lacks the tensors that give {', '.join(missing)}.", "Give a checkpoint of the LSTR architecture."
        )
    known: dict[str, Any] = {
        name: value for name, value in found.items() if name not in ("n_classes", "input_dim", "long_memory")
    }
    input_dim = found["input_dim"]
    if "rgb_dim" in found:
        pass  # as two branches tell
    elif input_dim in INPUT_DIMS:
        known["rgb_dim"], known["flow_dim"] = INPUT_DIMS[input_dim]
    elif not {"rgb_dim", "flow_dim"} <= set(overrides):
        raise CheckpointError(
            f"{path} takes features {input_dim} wide, which may be split in many ways.",
            "Add [[model.rgb_dim=…]] and [[model.flow_dim=…]]",
        )
    if kind == "lstr":
        known |= {"grid": "sliding", "positions": "slot"}
    if not found.get("long_memory", 1):
        known["long_length"] = 0
    base = {"lstr": LSTRConfig(), "miniroad": MINIROAD, "testra": TESTRA, "gatehub": GATEHUB, "oadtr": OADTR}
    base |= {"colar": COLAR, "trn": TRN, "cmert": CMERT, "mat": MAT, "idn": IDN, "fats": FATS, "woad": WOAD}
    if kind == "gatehub":
        stride = override(GATEHUB, {n: v for n, v in overrides.items() if n == "long_stride"}).long_stride
        known["long_length"] = known.pop("n_long") * stride
    elif kind == "oadtr":
        known["anticipation"] = known.pop("n_ahead")
        asked = tensors.get("decoder.0.linear1.weight")
        known["decoder_feedforward"] = 0 if asked is None else len(asked)
    elif kind in ("colar", "trn", "idn", "fats", "woad"):
        known["n_heads"] = 1  # they have none
    try:
        return override(base[kind], {**known, **overrides})
    except ConfigError as error:
        hint = f"{error.hint} Add for example [[model.n_heads=8]]" if "n_heads" in str(error) else error.hint
        raise ConfigError(f"{path}: {error}", hint) from error


def unknown_of(config: LSTRConfig) -> tuple[str, ...]:
    """Settings that a published checkpoint of this kind does not tell, and that make a difference."""
    return UNKNOWN.get(config.kind, UNKNOWN["lstr"])


def published_classes(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of the classes, by how many they are."""
    n_classes = len(tensors["classifier.weight"])
    if n_classes == len(THUMOS_CLASSES):
        return THUMOS_CLASSES
    # Column 0 is background in every published data set.
    return (BACKGROUND, *(f"class_{index}" for index in range(1, n_classes)))
