"""Words of the version before: they work in this one still, with a warning that names the new ones."""

from collections.abc import Iterator

import click

from lstr_cli.settings import settings_of

WORDS = (
    ("detect", "--at-once", "--workers {}"),
    ("finetune", "--loaders", "--workers {}"),
    ("detect extract", "--rgb-weights", "--weights rgb={}"),
    ("detect extract", "--flow-weights", "--weights flow={}"),
    ("finetune", "--rgb-init", "--init rgb={}"),
    ("finetune", "--flow-init", "--init flow={}"),
    ("detect bench", "--flow", "--set recipe.flow_algorithm={}"),
    ("extract bench", "--precision", "--set recipe.precision={}"),
    ("extract finetune", "--rgb-network", "--set recipe.rgb.network={}"),
    ("extract finetune", "--flow-network", "--set recipe.flow.network={}"),
    ("extract", "--streams", "--stream {}"),
    ("extract", "--no-cache", "--cache none"),
    ("check train evaluate", "--skip-missing", "--set skip_missing=true"),
    ("detect evaluate", "--allow-recipe-mismatch", "--set recipe.allow_mismatch=true"),
    ("learn", "--kind", "--set model.kind={}"),
    ("train", "--max-steps", "--set train.max_steps={}"),
    ("train", "--patience", "--set train.patience={}"),
    ("train", "--seed", "--set train.seed={}"),
    ("train", "--deterministic", "--set train.deterministic=true"),
)
"""Commands, what they took, and what they take; {} stands for the value."""
NEVER_OPTIONS = ("highest", "backdate", "table", "tell")
NEWER = ("learn cache_size",)
"""Settings of single commands that were an option of others alone"""
WITHOUT_PAST = ("export", "reproduce")
"""Commands that are newer than the change of words."""


def words_of(command: click.Command) -> dict[str, str]:
    """What a command took, and what it takes: WORDS, and its settings without a dot, most of which were options."""
    if command.name in WITHOUT_PAST:
        return {}
    keys = [one.key for one in settings_of(command) if "." not in one.key and one.key not in NEVER_OPTIONS]
    keys = [key for key in keys if f"{command.name} {key}" not in NEWER]
    were_options = {f"--{key.replace('_', '-')}": f"--set {key}={{}}" for key in keys}
    return were_options | {old: new for commands, old, new in WORDS if command.name in commands.split()}


def in_new_words(command: click.Command, args: list[str], silent: bool = False) -> Iterator[str]:
    """The words of a command line with the earlier ones among them replaced; says so unless `silent`."""
    new = words_of(command)
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--" or name not in new:
            yield word
            if word == "--":
                yield from words
            continue
        if "{}" in new[name] and not equals:
            given = next(words, None)
            if given is None:
                raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.")
            value = given
        option, _, form = new[name].partition(" ")
        now = form.replace("{}", value)
        if not silent:
            text = f"warning: {name} is an earlier word, and goes with the next version; write {option} {now}."
            click.secho(text, fg="yellow", err=True)
        yield from (option, now)
