"""`lstr models`: every kind of model, what it costs and what was published of it."""

import click

from lstr_cli import console
from lstr_cli.options import Command, as_json

MILLION = 1e6
HEADLINES = ("THUMOS'14 mAP", "TVSeries mcAP")


@click.command("models", cls=Command)
@click.argument("kind", metavar="[KIND]", required=False)
@as_json
def command(kind, as_json):
    """Every kind of model that `lstr train --set model.kind=KIND` trains; with KIND, all that is known of it.

    Parameters and multiply-adds are those of the published size.
    "same weights, same numbers": ours gives what the published code gives, by data which that code made.

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
    elif kind is None:
        _show_all(found)
    else:
        _show_one(found[0])


def _show_all(found: list[dict]) -> None:
    columns = ("kind", "year", "parameters", "multiply-adds a chunk", *HEADLINES)
    rows = []
    for one in found:
        cost = (_millions(one["parameters"]), _millions(one["multiply_adds"]))
        rows.append((one["kind"], one["year"], *cost, *(_headline(one, of) for of in HEADLINES), one["exact"]))
    console.show_table("kinds of model", (*columns, "ours is"), rows, right=range(1, len(columns)))
    console.say("`lstr models KIND` has paper, licence, presets and the features and source of each published number.")


def _show_one(one: dict) -> None:
    rows = [
        ("paper", one["paper"]),
        ("address", one["address"] or "–"),
        ("published code", one["code"] or "none used"),
        ("its licence", one["licence"]),
        ("ours is", f"{one['exact']}: {one['note']}"),
        ("held against", ", ".join(one["golden"]) or "–"),
        ("presets", ", ".join(one["presets"]) or f"none; --set model.kind={one['kind']}"),
        *(("training differs", text) for text in one["differs"]),
        ("parameters", f"{one['parameters']:,}"),
        ("multiply-adds a chunk", f"{one['multiply_adds']:,}"),
    ]
    console.show_table(f"{one['kind']}: {one['name']}, {one['year']}", ("entry", "value"), rows)
    if one["results"]:
        columns = ("of", "%", "features", "seen in", "preset")
        results = [
            (r["of"], f"{r['value']:.1f}", r["features"], r["seen"], ", ".join(r["presets"]) or "–")
            for r in one["results"]
        ]
        console.show_table("published numbers", columns, results, right=(1,))


def _headline(one: dict, of: str) -> str:
    """The first published number of a data set, with its fellow readers' caveat left to `lstr models KIND`."""
    found = (result for result in one["results"] if result["of"].startswith(of) and "ahead" not in result["of"])
    return next((f"{result['value']:.1f}" for result in found), "–")


def _millions(n: int) -> str:
    return f"{n / MILLION:,.1f} M"
