"""The kinds of model by name, and the kind of a published file. A kind is imported when it is needed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from lstr.config import WindowConfig
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.files.home import find_added, load_added
from lstr.settings import build, convert, defaults, override

if TYPE_CHECKING:
    from torch import Tensor

    from lstr.models.kind import Kind, Model, Preset

# Entry points of other packages, by which their kinds are kinds here; each names a `lstr.models.kind.Kind`.
GROUP = "lstr.kinds"
# Where the kinds of this package are.
OURS = {
    "lstr": "lstr.models.lstr:KIND",
    "rnn": "lstr.models.recurrent:KIND",
    "trn": "lstr.models.trn:KIND",
    "lfb": "lstr.models.feature_bank:KIND",
    "miniroad": "lstr.models.recurrent:MINIROAD_KIND",
    "testra": "lstr.models.testra:KIND",
    "gatehub": "lstr.models.gatehub:KIND",
    "oadtr": "lstr.models.oadtr:KIND",
    "colar": "lstr.models.colar:KIND",
    "cmert": "lstr.models.cmert:KIND",
    "mat": "lstr.models.mat:KIND",
    "idn": "lstr.models.idn:KIND",
    "fats": "lstr.models.fats:KIND",
    "woad": "lstr.models.woad:KIND",
    "efc": "lstr.models.encoder_decoder:EFC_KIND",
    "ed": "lstr.models.encoder_decoder:ED_KIND",
    "red": "lstr.models.encoder_decoder:RED_KIND",
    "ttm": "lstr.models.encoder_decoder:TTPP_KIND",
    "lap-like": "lstr.models.trn:LAP_LIKE_KIND",
    "tfn-like": "lstr.models.convolutional:TFN_LIKE_KIND",
    "conv-deconv": "lstr.models.convolutional:CONV_DECONV_KIND",
}
FIRST = "lstr"  # the kind of a published file whose tensors fit it and another kind, or no kind
TOGETHER = {"average": "lstr.average:KIND"}  # kinds that are made of trained models, and are not trained themselves


class Kinds(Mapping[str, "Kind"]):
    """Kinds by name, first of this package, then of others. Iterating over the names imports no kind.

    Kinds of `TOGETHER` are found by name, but are not in the iteration, because they cannot be trained.
    """

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        return find_added(GROUP, OURS)

    def __getitem__(self, name: str) -> Kind:
        """Return the kind. Raises ConfigError that lists all known ones, or for an invalid one of another package."""
        if not isinstance(name, str) or name not in self:
            raise ConfigError(
                f"Unknown kind of model: {name!r}.", f"choose one of: {', '.join(self)}, or install its package."
            )
        if place := OURS.get(name) or TOGETHER.get(name):
            return EntryPoint(name, place, GROUP).load()
        return load_added(
            self._others[name],
            "kind",
            lambda kind: kind if getattr(kind, "name", None) == name else None,
            "a lstr.models.kind.Kind with that name as `kind` of its configuration",
            ConfigError,
        )

    def __iter__(self) -> Iterator[str]:
        return iter((*OURS, *self._others))

    def __len__(self) -> int:
        return len(OURS) + len(self._others)

    def __contains__(self, name: object) -> bool:
        return name in OURS or name in TOGETHER or name in self._others


KINDS = Kinds()


@cache
def usable() -> dict[str, Kind]:
    """Return all kinds by name, which imports them; a kind of another package that fails is skipped with a warning."""
    found: dict[str, Kind] = {}
    for name in KINDS:
        try:
            found[name] = KINDS[name]
        # A broken kind of another package must not stop the use of others.
        except ConfigError as error:
            warnings.warn(f"{error} hint: {error.hint}", stacklevel=2)
    return found


@cache
def presets() -> dict[str, Preset]:
    """Return the presets of all kinds by name; those for little video come last."""
    found: dict[str, Preset] = {}
    for kind in usable().values():
        for preset, settings in kind.presets.items():
            found.setdefault(preset, settings)  # a later kind cannot replace a preset
    return dict(sorted(found.items(), key=lambda item: item[1].for_little_video))


def make_model(config: WindowConfig, n_classes: int) -> Model:
    """Return a model of the kind the configuration names, with fresh weights."""
    return KINDS[config.kind].model(config, n_classes)


def configure(kind: str = "lstr", **settings: Any) -> WindowConfig:
    """Return the configuration of a kind, its other settings by default. Raises ConfigError."""
    return build(KINDS[kind].config, _without_foreign(settings, kind), strict=True)


def change(config: WindowConfig, changes: Mapping[str, Any]) -> WindowConfig:
    """See `lstr.settings.override`, where the kind may be changed too: the new one takes the settings that it has."""
    kind = changes.get("kind", config.kind)
    target = KINDS[kind].config
    own = _without_foreign({name: value for name, value in changes.items() if name != "kind"}, kind)
    if target is type(config):
        return override(config, own)
    known, plain = defaults(target), defaults(type(config))
    before = {name: value for name, value in structs.asdict(config).items() if name not in changes}
    kept = {name: value for name, value in before.items() if name in known or value != plain[name]}
    return build(target, {**_without_foreign(kept, kind), **own})


def from_json(text: Any) -> WindowConfig:
    """Return a configuration from its JSON. Fields it lacks keep their defaults. Raises ConfigError."""
    try:
        values = msgspec.convert(json.loads(text), dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"The configuration is not a JSON object ({error}).", "save the checkpoint again.") from error
    return build(KINDS[values.pop("kind", "lstr")].config, values, strict=True)


def _without_foreign(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return settings without those of other kinds at their defaults. Raises ConfigError for other values."""
    known = defaults(KINDS[kind].config)
    for name in (name for name in values if name not in known):
        having = {other: config for other in OURS if name in defaults(config := KINDS[other].config)}
        if not having:
            raise ConfigError(f"Unknown setting: {name!r}.", f"choose one of: {', '.join(known)}.")
        for config in having.values():
            if convert(config, name, values[name]) != defaults(config)[name]:
                raise ConfigError(
                    f"Kind {kind} does not support {name} {json.dumps(values[name])}.",
                    f"remove the setting, or use kind {' or '.join(having)}.",
                )
    return {name: value for name, value in values.items() if name in known}


def read_published(
    path: Path, tensors: Mapping[str, Tensor], changes: Mapping[str, Any]
) -> tuple[dict[str, Tensor], WindowConfig, dict[str, Any], list[str]]:
    """Return published tensors under our names, configuration, assumed settings, and other kinds that may fit.

    The kind is the one in `changes`, else the one that the tensors fit. If they fit several, it is `FIRST`, which is
    then among the assumed settings. Raises CheckpointError and ConfigError.
    """
    if all(name.startswith("module.") for name in tensors):  # of training on several GPUs
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    named = changes.get("kind")
    known = {name: kind.published for name, kind in usable().items() if kind.published is not None}
    fitting = [name for name, published in known.items() if published.fits(tensors)]
    if not named and len(fitting) > 1 and FIRST not in fitting:
        raise CheckpointError(f"{path} fits several kinds: {', '.join(fitting)}.", f"add --set model.kind={fitting[0]}")
    kind = named or (fitting[0] if len(fitting) == 1 else FIRST)
    published, others = KINDS[kind].published or known[FIRST], [] if named else fitting
    try:
        renamed = published.renamed(tensors)
        try:
            config = change(published.config, {**published.settings(renamed, changes), **changes})
        except LstrError as error:
            hint = error.hint
            if "n_heads" in str(error):  # any divisor would load, but all except one give other scores
                hint = "add --set model.n_heads=… as it was trained; the tensors do not show it."
            raise type(error)(f"{path}: {error}", hint) from error
    except (LookupError, RuntimeError, TypeError) as error:
        missing_one = f"{path}: a published tensor is missing, or has another shape ({error})."
        raise name_kind(CheckpointError(missing_one, "fetch or copy the file again."), kind, others) from error
    except LstrError as error:
        raise name_kind(error, kind, others) from error
    assumed = {name: getattr(config, name) for name in published.unknown if name not in changes}
    if not named and len(fitting) > 1:
        assumed = {"kind": kind, **assumed}
    return renamed, config, assumed, others


def name_kind(error: LstrError, kind: str, fitting: Sequence[str]) -> LstrError:
    """Return the error with a hint: the assumed kind, and how to name another one that may fit."""
    others = [name for name in fitting if name != kind]
    hint = f"{error.hint} It was read as kind {kind}"
    hint += f"; if it is of kind {' or '.join(others)}, add --set model.kind={others[0]}" if others else "."
    return type(error)(str(error), hint)
