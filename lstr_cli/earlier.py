"""Words of the version before: they work in this one still, with a warning that names the new ones."""

from collections.abc import Iterator

import click

WORDS = (
    ("detect", "--at-once", "--workers {}"),
    ("finetune", "--loaders", "--workers {}"),
    ("train", "--readers", "--set readers={}"),
    ("extract", "--threads", "--set threads={}"),
    ("detect finetune quantise bench", "--flow-threads", "--set flow_threads={}"),
    ("detect extract finetune quantise bench", "--flow-backend", "--set flow_backend={}"),
    ("detect extract quantise bench", "--runtime", "--set runtime={}"),
    ("detect", "--model-precision", "--set model_precision={}"),
    ("detect extract", "--rgb-weights", "--weights rgb={}"),
    ("detect extract", "--flow-weights", "--weights flow={}"),
    ("finetune", "--rgb-init", "--init rgb={}"),
    ("finetune", "--flow-init", "--init flow={}"),
    ("detect bench", "--flow", "--set recipe.flow_algorithm={}"),
    ("extract bench", "--precision", "--set recipe.precision={}"),
    ("extract finetune", "--rgb-network", "--set recipe.rgb.network={}"),
    ("extract finetune", "--flow-network", "--set recipe.flow.network={}"),
    ("extract", "--streams", "--stream {}"),
    ("extract", "--engine", "--set engine={}"),
    ("extract", "--ray-address", "--set ray_address={}"),
    ("extract", "--no-cache", "--cache none"),
    ("learn", "--cache", "--set cache={}"),
    ("finetune", "--cache-size", "--set cache_size={}"),
    ("learn finetune extract", "--ext", "--set ext={}"),
    ("learn finetune extract", "--root", "--set root={}"),
    ("check train evaluate finetune", "--dataset", "--set dataset={}"),
    ("check train evaluate", "--rgb-features", "--set rgb_features={}"),
    ("check train evaluate", "--flow-features", "--set flow_features={}"),
    ("check train evaluate", "--skip-missing", "--set skip_missing=true"),
    ("learn finetune", "--seed", "--set seed={}"),
    ("learn", "--kind", "--set model.kind={}"),
    ("train", "--max-steps", "--set train.max_steps={}"),
    ("train", "--patience", "--set train.patience={}"),
    ("train", "--seed", "--set train.seed={}"),
    ("train", "--deterministic", "--set train.deterministic=true"),
    ("evaluate", "--mode", "--set mode={}"),
    ("evaluate", "--resamples", "--set resamples={}"),
    ("evaluate", "--benchmark", "--set benchmark={}"),
    ("detect", "--embed", "--set embed={}"),
    ("detect", "--max-chunks", "--set max_chunks={}"),
    ("detect", "--clock", "--set clock={}"),
    ("detect", "--on-lag", "--set on_lag={}"),
    ("detect", "--on-gap", "--set on_gap={}"),
    ("detect", "--timeout", "--set timeout={}"),
    ("convert", "--name", "--set name={}"),
    ("convert", "--on", "--set on={}"),
    ("convert", "--off", "--set off={}"),
    ("convert", "--min-length", "--set min_length={}"),
    ("convert", "--merge-gap", "--set merge_gap={}"),
    ("bench", "--chunks", "--set chunks={}"),
    ("quantise", "--chunks", "--set chunks={}"),
)
"""Commands, what they took, and what they take; {} stands for the value."""


def in_new_words(command: str, args: list[str], silent: bool = False) -> Iterator[str]:
    """The words of a command line with the earlier ones among them replaced; says so unless `silent`."""
    new = {old: now for commands, old, now in WORDS if command in commands.split()}
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
