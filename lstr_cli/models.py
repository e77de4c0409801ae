"""`lstr models`: every kind of model with its cost and published results."""

import click

from lstr_cli import console
from lstr_cli.options import Command, as_json

HEADLINES = ("THUMOS'14 mAP", "TVSeries mcAP")


@click.command("models", cls=Command)
@click.argument("kind", metavar="[KIND]", required=False)
@as_json
def command(kind, as_json):
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
        console.show_table("kinds of model", (*columns, "ours is"), rows, right=range(1, len(columns)))
        console.say("`lstr models KIND` shows paper, licence, presets, features and sources of published numbers.")
        return
    about = found[0]
    entries = [
        ("paper", about["paper"]),
        ("address", about["address"] or "–"),
        ("published code", about["code"] or "none used"),
        ("its licence", about["licence"]),
        ("ours is", f"{about['exact']}: {about['note']}"),
        ("held against", ", ".join(about["golden"]) or "–"),
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
        console.show_table("published numbers", ("of", "%", "features", "seen in", "preset"), results, right=(1,))
