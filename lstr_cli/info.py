"""`lstr info`, `doctor` and `models`: what a file holds, what this machine has, and which kinds of model there are."""

import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import click

from lstr_cli import console
from lstr_cli.options import OF_MODEL, Command, as_json, set_option

DAMAGED = 3
MARKS = {True: "ok", False: "MISSING", None: "–"}  # of findings of `lstr doctor`
MAX_FAULTS = 20  # in a table; --json has them all
HIDDEN = ("kind", "faults")
SETTINGS = ("config", "changed")  # their entries keep the names that `--set` takes
MAX_ITEMS = 12  # of a list
HEADLINES = ("THUMOS'14 mAP", "TVSeries mcAP")  # of the table of models


@click.command("info", cls=Command)
@click.argument("path", metavar="PATH")
@as_json
@set_option(model=OF_MODEL)
def info(path, settings, as_json):
    """Describe a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file.

    A feature folder is read whole: lengths, recipe, numbers that are not finite, rows of zeros, and the hashes that
    were recorded when the arrays were written. Exits with status 3 if it has a fault. Of a model file it prints the
    model card, in Markdown when piped.

    \b
    Examples:
      lstr info game.mp4
      lstr info features
      lstr info fall.lstr
      lstr info run/checkpoint.pt --json
      lstr info my_weights
      lstr info labels.json
      lstr info fast
    """
    from lstr.pipelines.info import describe

    with console.Bar("videos") as bar:
        described = describe(path, settings.take("model"), lambda _, done, total: bar.update("checked", done, total))
    faults, card = described.get("faults", []), described.pop("card", None)
    if as_json:
        console.show_json(described)
    elif card:
        console.show_markdown(card)
    else:
        shown = {key: value for key, value in described.items() if key not in HIDDEN}
        nested = {key: value for key, value in shown.items() if isinstance(value, Mapping) and value}
        rows = [(key.replace("_", " "), _text(key, value)) for key, value in shown.items() if key not in nested]
        console.show_table(f"{path}: {described['kind']}", ("entry", "value"), rows)
        for key, value in nested.items():
            title = key.replace("_", " ")
            parts = [dict(_flat(part, False)) for part in value.values() if isinstance(part, Mapping)]
            if len(parts) == len(value) and all([*part] == [*parts[0]] for part in parts):  # as of each class
                rows_of_parts = [(name, *part.values()) for name, part in zip(value, parts, strict=True)]
                console.show_table(title, ("", *parts[0]), rows_of_parts)
            else:
                console.show_table(title, ("entry", "value"), list(_flat(value, key in SETTINGS)))
        if faults:
            found = [(fault["id"], fault["stream"], fault["what"]) for fault in faults[:MAX_FAULTS]]
            console.show_table(f"{len(faults)} faults", ("video", "stream", "what"), found)
    if faults:
        redo = f"remove their files in {path}/records, and run the same `lstr extract` again."
        hint = redo if "recipe" in described else "extract the features of these videos again, or remove their files."
        number = len(described["damaged"])
        what = f"1 video of {path} is" if number == 1 else f"{number} videos of {path} are"
        console.say(f"failed: {what} damaged.\nhint: {hint}")
        sys.exit(DAMAGED)


def _flat(entries: Mapping[str, Any], is_setting: bool, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield entries within entries as "rgb network"; skip unknown ones."""
    for key, value in entries.items():
        name = before + (key if is_setting else key.replace("_", " "))
        if key in HIDDEN or value is None:
            continue
        if isinstance(value, Mapping) and value:
            yield from _flat(value, is_setting, f"{name} ")
        else:
            yield name, _text(key, value)


def _text(key: str, value: Any) -> str:
    """Return a value with its unit."""
    if value is None or (isinstance(value, str | list | tuple | Mapping) and not value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "size":  # of a video "320x240"; of what a network sees, its height and width
        across, down = value.split("x") if isinstance(value, str) else reversed(value)
        return f"{across} × {down} pixels"
    if key == "duration":
        return f"{value:.2f} s"
    if key == "hours":
        return console.clock(3600 * value)
    if isinstance(value, list | tuple):
        if isinstance(value[0], Mapping):
            return f"{len(value)}, see --json"
        if isinstance(value[0], int | float):  # equal numbers, such as ten means of 128, once
            runs = [(number, len(list(same))) for number, same in groupby(value)]
            words = [f"{number:g}" + (f" ({n} times)" if n > 1 else "") for number, n in runs]
        else:
            words = list(map(str, value))
        return ", ".join(words[:MAX_ITEMS]) + (f" … ({len(words)})" if len(words) > MAX_ITEMS else "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command("doctor", cls=Command)
@as_json
def doctor(as_json):
    """Check versions, decoders, optical flow, networks, GPU and weights; exits with status 1 if something is missing.

    A dash marks what is not there and need not be, such as a GPU.

    \b
    Examples:
      lstr doctor
      lstr doctor --json
    """
    from lstr.pipelines.doctor import examine

    findings = examine()
    if as_json:
        console.show_json([finding._asdict() for finding in findings])
    else:
        rows = [(MARKS[f.ok], f.what, f.found) for f in findings]
        console.show_table("lstr doctor", ("", "what", "found"), rows)
        for finding in findings:
            if finding.hint:
                console.say(f"hint: {finding.what}: {finding.hint}")
    if any(finding.ok is False for finding in findings):
        sys.exit(1)


@click.command("models", cls=Command)
@click.argument("kind", metavar="[KIND]", required=False)
@as_json
def models(kind, as_json):
    """List the kinds of model that `lstr train --set model.kind=KIND` trains; with KIND, show all about one.

    Parameters and multiply-adds are for the published size. "same weights, same numbers": ours equals the
    published code on data that this code computed.

    \b
    Examples:
      lstr models
      lstr models miniroad
      lstr models --json | jq -r '.[] | [.kind, .parameters] | @tsv'
    """
    from lstr.pipelines.models import describe_models

    found = list(describe_models(kind))
    if as_json:
        console.show_json(found if kind is None else found[0])
        return
    if kind is None:
        columns, rows = ("kind", "year", "parameters", "multiply-adds a chunk", *HEADLINES), []
        for about in found:
            cells = [about["kind"], about["year"]]
            cells += [f"{about[name] / 1e6:,.1f} M" for name in ("parameters", "multiply_adds")]
            for data_set in HEADLINES:
                of_it = [r for r in about["results"] if r["of"].startswith(data_set) and "ahead" not in r["of"]]
                cells.append(f"{of_it[0]['value']:.1f}" if of_it else "–")
            rows.append((*cells, about["exact"]))
        console.show_table("kinds of model", (*columns, "implementation"), rows, right=range(1, len(columns)))
        console.say("`lstr models KIND` shows paper, licence, presets, features and sources of published numbers.")
        return
    about = found[0]
    entries = [
        ("paper", about["paper"]),
        ("address", about["address"] or "–"),
        ("published code", about["code"] or "none used"),
        ("licence of that code", about["licence"]),
        ("implementation", f"{about['exact']}: {about['note']}"),
        ("tested against", ", ".join(about["golden"]) or "–"),
        ("presets", ", ".join(about["presets"]) or f"none; --set model.kind={kind}"),
        *(("training differs", text) for text in about["differs"]),
        ("parameters", f"{about['parameters']:,}"),
        ("multiply-adds a chunk", f"{about['multiply_adds']:,}"),
    ]
    console.show_table(f"{kind}: {about['name']}, {about['year']}", ("entry", "value"), entries)
    if about["results"]:
        results = [
            (r["of"], f"{r['value']:.1f}", r["features"], r["seen"], ", ".join(r["presets"]) or "–")
            for r in about["results"]
        ]
        console.show_table("published numbers", ("metric", "%", "features", "source", "preset"), results, right=(1,))
