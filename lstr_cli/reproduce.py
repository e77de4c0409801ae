"""`lstr reproduce`: a kind trained as it was published, and its row of the paper beside ours."""

from typing import TYPE_CHECKING, Any

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import data_settings, device_option
from lstr_cli.settings import set_option, setting

if TYPE_CHECKING:  # they bring torch
    from lstr.pipelines.reproduction.job import Planned
    from lstr.pipelines.reproduction.record import Line, Reproduced


@click.command("reproduce", cls=Command)
@click.argument("kind", metavar="KIND")
@click.option("--features", metavar="DIR", multiple=True, required=True, help="Folder of features; repeatable.")
@click.option(
    "--labels",
    metavar="FILE",
    help="Labels: JSON, CSV, ELAN, … or a data_info.json.  [default: that or labels.json beside DIR]",
)
@click.option("-o", "--output", metavar="DIR", help="Folder for all that comes of it.  [default: reproduce-PRESET]")
@click.option(
    "--preset",
    metavar="NAME",
    help="The settings.  [default: those that the kind's number on these data was published with]",
)
@click.option("--seeds", type=click.IntRange(min=1), default=3, help="How many trainings, each with a seed of its own.")
@set_option()
@data_settings
@setting("readers", type=click.IntRange(min=1), help="Threads that read features ahead.  [default: up to 4]")
@device_option
@click.option("--dry-run", is_flag=True, help="Check the data, measure a few steps, show the plan, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print plan or result as one JSON document.")
def command(kind, dry_run, as_json, **options):
    """Train KIND by its published settings, score it by its published protocol, and print the paper's row beside yours.

    First it says what will be done: the settings, the row with its source, what differs from the published run, what of
    the data is not as published, and how long it takes by a few steps on this machine. Then each seed is trained and
    scored. Run the same command again to go on after an interruption, or with more --seeds.

    Where data, features or settings are not those of the row, it is not comparable, and the table says why. Numbers
    that are not at hand are not made up. DIR gets reproduce.json, and a folder for each seed with its run.

    \b
    Examples:
      lstr reproduce miniroad --features data/THUMOS --dry-run
      lstr reproduce lstr --features data/THUMOS --labels data/data_info.json -o lstr-again
      lstr reproduce mat --features data/TVSeries --seeds 5
    """
    from lstr.pipelines.reproduction.job import plan, reproduce
    from lstr.pipelines.reproduction.options import ReproduceOptions

    chosen = ReproduceOptions(kind, **options)
    if dry_run:
        planned = _follow(plan(chosen))
        if as_json:
            console.show_json(planned.to_dict())
        return
    reproduced = _follow(reproduce(chosen))
    if as_json:
        console.show_json(reproduced.document)
    else:
        _show(reproduced)
    console.say(f"written: {reproduced.path}")


def _follow(events: Any) -> Any:
    """Show what the job yields until it is finished; its result."""
    from lstr.pipelines.reproduction.job import Doing, Planned

    shown = ""

    def show(event: Any, bar: console.Bar) -> None:
        nonlocal shown
        match event:
            case Planned():
                _say_plan(event)
            case Doing():
                name = f"seed {event.seed}: {event.what}"
                if name != shown:
                    bar.drop(shown)
                    console.say(f"{name}; about {console.clock(event.left)} left in all")
                    shown = name
                note = f"{event.note} ({console.clock(event.left)} in all)"
                bar.update(name, event.done, event.total, note)

    return console.follow(events, "", show)


def _say_plan(planned: "Planned") -> None:
    """What will be done, what it stands beside, and what is not as published."""
    plan = planned.plan
    publication = plan.publication
    train = plan.train
    rows = [
        ("paper", publication.paper),
        ("ours is", f"{publication.exact}: {publication.note}" if publication.note else publication.exact),
        *((f"published {row.name}", _published(row)) for row in plan.rows),
        (
            "settings",
            f"preset {plan.preset}: {plan.steps} steps of {train.batch_size} windows, {train.epochs} epochs at most",
        ),
        *((("changed", ", ".join(f"{n}={v}" for n, v in plan.changed.items())),) if plan.changed else ()),
        *(("differs from the published run", text) for text in plan.differs),
        ("videos", ", ".join(f"{n} {subset}" for subset, n in plan.videos.items())),
        *(("data not as published", str(one)) for one in plan.data),
        ("scored", " and ".join(_protocol(plan, one) for one in plan.protocols)),
        ("weights", f"{', as published, and '.join(plan.weights)}"),
        ("seeds", ", ".join(map(str, plan.seeds))),
    ]
    console.say_table(f"{plan.kind}: {publication.name} on {plan.dataset.name}", ("", "plan"), rows)
    for row in plan.rows:
        if row.reasons:
            console.say(f"{row.name} will not be comparable: {'; '.join(row.reasons)}.")
    left = len(plan.seeds) - len(planned.finished)
    if planned.finished:
        console.say(f"finished before: seed {', '.join(map(str, planned.finished))}")
    if plan.pace:
        of = "a step" if plan.pace.whole else f"a step of {plan.pace.windows} windows"
        console.say(
            f"about {console.clock(plan.seconds(left))} for {left} {'seed' if left == 1 else 'seeds'}, by {of} and "
            "some scores on this machine"
        )
    console.say(f"everything is kept in {planned.folder}; after Ctrl-C run the same command again")


def _published(row: Any) -> str:
    if row.published is None:
        return row.source
    return f"{row.published:.1f}, {row.features}; seen in {row.source}"


def _protocol(plan: Any, protocol: str) -> str:
    """What a protocol scores, in words."""
    from lstr.kinds import KINDS
    from lstr.pipelines.reproduction.plan import PUBLISHED, rule_of_kind

    if protocol != PUBLISHED:
        return "every chunk that is not ambiguous"
    rule = rule_of_kind(KINDS[plan.kind], plan.model)
    chunks = {
        "every": "every chunk",
        "long videos": f"every chunk of a video of {rule.work_length} chunks and more",
        "whole windows": f"every chunk that a whole window of {rule.work_length} chunks leads up to",
        "after the first": "every chunk but a video's first",
    }[rule.chunks]
    ambiguous = {
        "ignored": "ambiguous ones left out",
        "left out alone": "unless its one label is ambiguous",
        "left out oldest": "unless its work memory begins with one that is ambiguous alone",
        "negative": "ambiguous ones too, as chunks without an action",
    }[rule.ambiguous]
    return f"{chunks}, {ambiguous}, as {rule.code}'s code does"


def _show(reproduced: "Reproduced") -> None:
    """The table, and a sentence for each row."""
    plan = reproduced.plan
    several = len(plan.weights) > 1
    seeds = [f"seed {seed}" for seed in plan.seeds]
    columns = ("", "scored", *(("weights",) if several else ()), "published", *seeds, "mean ± deviation", "compares")
    rows = [_row(line, several) for line in reproduced.lines]
    first = 2 + several
    title = f"{plan.kind}: {plan.publication.name} on {plan.dataset.name}, in percent"
    console.show_table(title, columns, rows, right=range(first, first + 2 + len(seeds)))
    for sentence in reproduced.verdicts:
        console.show(sentence)


def _row(line: "Line", several: bool) -> tuple[str, ...]:
    from lstr.pipelines.reproduction.plan import STANDARD
    from lstr.pipelines.reproduction.rows import NOT_AT_HAND

    row = line.row
    mean, deviation = line.mean, line.deviation
    values = ["–" if value is None else f"{value:.1f}" for value in line.values]
    both = "–" if mean is None else f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"
    published = NOT_AT_HAND if row.published is None else f"{row.published:.1f}"
    compares = NOT_AT_HAND if row.published is None else "yes"
    if row.reasons:
        compares = f"{row.reasons[0]}: not comparable"
    scored = "every chunk" if line.protocol == STANDARD else "as its code does"
    return row.name, scored, *((line.weights,) if several else ()), published, *values, both, compares
