"""Pages made from the code: the settings of every preset, the kinds of model."""

import ast
import dataclasses
import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from lstr.config import WindowConfig
from lstr.models.kind import Kind
from lstr.settings import Settings

SPEEDS = Path(__file__).resolve().parents[1] / "benchmarks" / "models.json"


def write(folder: Path) -> None:
    """Every generated page; a file that is as it should be is left alone, so that nothing is built twice."""
    folder.mkdir(exist_ok=True)
    _keep(folder / "presets.md", presets_page())
    _keep(folder / "models.md", models_page())


def _keep(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def presets_page() -> str:
    """A table per dataclass of settings, with a column for each of its presets."""
    from lstr import kinds
    from lstr.extractors import presets as recipes
    from lstr.extractors.networks.network import NETWORKS
    from lstr.pipelines.training import config as training
    from lstr.pipelines.training import network_config as finetuning

    models = {name: preset.model for name, preset in kinds.presets().items()}
    finetune = {"flow, random": finetuning.RANDOM["flow"], "RGB, random": finetuning.RANDOM["rgb"]}
    small = finetuning.defaults("flow", None, NETWORKS["shufflenetv2"])
    finetune |= {
        "flow, random, small networks": small,
        "trained weights": finetuning.PUBLISHED,
        "ImageNet": finetuning.PICTURES,
    }
    streams = {name: preset for name, preset in recipes.PRESETS.items() if name not in ("faithful", "fast")}
    return "\n".join(
        (
            "## Model\n",
            "`model.NAME` of `lstr train`. Lengths are in chunks of 0.25 s.\n",
            table(WindowConfig, models),
            *(part for kind in kinds.KINDS.values() for part in own_settings(kind)),
            "## Training\n",
            "`train.NAME` of `lstr train`.\n",
            table(training.TrainConfig, {name: train for name, (_, train) in training.presets().items()}),
            "## Training of the feature networks\n",
            "`NAME` of `lstr finetune`; by the stream, and by whether the network begins with random weights.\n",
            table(finetuning.FinetuneConfig, finetune),
            "## Recipes\n",
            "`faithful` is `kinetics` and `fast` is `kinetics-fast`.\n",
            table(recipes.Preset, streams),
        )
    )


def own_settings(kind: Kind) -> Iterator[str]:
    """A table of the settings that a kind adds, where it adds some."""
    names = {*names_of(kind.config)} - {*names_of(WindowConfig)}
    if names:
        yield f"### Of kind {kind.name} alone\n"
        yield table(kind.config, {name: preset.model for name, preset in kind.presets.items()}, names)


def models_page() -> str:
    """Return a table of all kinds of models, followed by a description of each."""
    from lstr.pipelines.models import describe_models

    found, measured = list(describe_models()), json.loads(SPEEDS.read_text())["kinds"]
    lines = ["| kind | paper | parameters | multiply-adds a chunk | steps/s, 1 core | 2 cores | this code | presets |"]
    lines.append("|---" * lines[0].count(" | ") + "|---|")
    for one in found:
        stream = measured.get(one["kind"], {}).get("stream", {})
        speeds = [f"{stream[n]['steps_per_second']:,.0f}" if n in stream else "-" for n in ("1", "2")]
        cells = [f"[`{one['kind']}`](#{one['kind']})", f"{one['name']}, {one['year']}"]
        cells += [f"{one[key] / 1e6:,.1f} M" for key in ("parameters", "multiply_adds")]
        presets = ", ".join(f"`{name}`" for name in one["presets"])
        lines.append("| " + " | ".join([*cells, *speeds, one["exact"], presets or "-"]) + " |")
    parts = ["\n".join(lines) + "\n"]
    for one in found:
        held = f" Tested against {', '.join(one['golden'])}." if one["golden"] else ""
        code = f"Published code: {one['code']}; " if one["code"] else ""
        text = f"{one['paper']}. {one['address']}\n\n{code}licence: {one['licence']}. Implementation: {one['exact']}: "
        parts += [f"## {one['kind']}\n", f"{text}{one['note']}.{held}\n"]
        if one["results"]:
            rows = ["| metric | % | features | source |", "|---|---|---|---|"]
            for result in one["results"]:
                rows.append(f"| {result['of']} | {result['value']:.1f} | {result['features']} | {result['seen']} |")
            parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def names_of(config: type) -> list[str]:
    """The fields of a struct or a dataclass."""
    fields = msgspec.structs.fields(config) if issubclass(config, Settings) else dataclasses.fields(config)
    return [field.name for field in fields]


def table(config: type, presets: Mapping[str, object], names: Collection[str] = ()) -> str:
    """Return rows for all or some fields of a configuration: name, value in each preset, description."""
    own = [one for one in reversed(config.__mro__) if one.__module__.startswith("lstr.")]
    about = {name: text for one in own for name, text in comments(one).items()}
    fields = [name for name in names_of(config) if not names or name in names]
    columns: dict[str, list[str]] = {}  # presets with the same values share a column
    for name, preset in presets.items():
        values = [_shown(getattr(preset, name)) for name in fields]
        same = next((names for names, theirs in columns.items() if theirs == values), None)
        columns[f"{same}, `{name}`" if same else f"`{name}`"] = columns.pop(same) if same else values
    lines = ["| setting | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for i, name in enumerate(fields):
        text = about.get(name, "").replace("|", "\\|")
        title = f"`{name}`" + (f"<br>{text}" if text else "")
        lines.append(f"| {title} | " + " | ".join(values[i] for values in columns.values()) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if dataclasses.is_dataclass(value):
        return ", ".join(f"{name} {v}" for name, v in dataclasses.asdict(value).items() if v is not None)
    return "-" if value is None else str(value)


def comments(config: type) -> dict[str, str]:
    """The docstring after each field of a configuration, as one line."""
    (tree,) = ast.parse(inspect.getsource(config)).body
    found: dict[str, str] = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[before.target.id] = " ".join(str(after.value.value).split())
    return found
