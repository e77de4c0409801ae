"""What a mistyped command line is answered with: what is wrong, and what was probably meant."""

import difflib
import re
from typing import Any

import click

NEAR = 0.6  # of difflib's ratio, from which on a word is probably a mistyped one
ELSEWHERE = {
    "--threshold": "--on",
    "--thresh": "--on",
    "--score": "--on",
    "--conf": "--on",
    "--gpu": "--device",
    "--cuda": "--device",
    "--cpu": "--device",
    "--fp16": "--set recipe.precision",
    "--bf16": "--set recipe.precision",
    "--out": "--output",
    "--output-dir": "--output",
    "--epochs": "--set",
    "--batch-size": "--set",
    "--lr": "--set",
    "--annotations": "--labels",
    "--num-workers": "--workers",
    "--jobs": "--workers",
    "--fold": "--folds",
}
"""What other tools call an option, and its name here."""


class Mistake(click.BadParameter):
    """A value that an option does not take, with a hint of its own."""

    def __init__(self, message: str, hint: str, **about: Any):
        super().__init__(message, **about)
        self.hint = hint


class Device(click.Choice):
    """`auto`, `cpu` or `cuda`; what torch knows besides is answered with what to type."""

    def convert(self, value, param, ctx):
        """The choice. Raises Mistake for anything else."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            number = re.fullmatch(r"(?:cuda|gpu):?(\d*)", value, re.IGNORECASE)
            near = difflib.get_close_matches(value.lower(), self.choices, 1, NEAR)
            if number and number[1]:
                hint = f"write --device cuda, and choose the GPU with CUDA_VISIBLE_DEVICES={number[1]}."
            elif number or near:
                hint = f"did you mean --device {'cuda' if number else near[0]}?"
            else:
                hint = "networks run on cuda (a GPU of NVIDIA or AMD) and on cpu alone."
            raise Mistake(error.message, hint, param=param, ctx=ctx) from None


class Precision(click.Choice):
    """`auto`, `float32` or `bf16`; int8, which no option alone can make, is answered with the command that does."""

    def convert(self, value, param, ctx):
        """The choice. Raises Mistake for int8."""
        if value == "int8":
            hint = "quantise a model file: lstr quantise MODEL.lstr VIDEOS -o small.lstr"
            raise Mistake("int8 needs ranges that are measured on videos.", hint, param=param, ctx=ctx)
        return super().convert(value, param, ctx)


def words_of(error: click.UsageError) -> tuple[str, str]:
    """The sentence and the hint for a command line that Click refused."""
    help_of = f"`{error.ctx.command_path if error.ctx else 'lstr'} --help` shows how it is used."
    if isinstance(error, Mistake):
        return error.format_message(), error.hint
    meant = None
    if isinstance(error, click.NoSuchOption):
        sentence = f"No such option '{error.option_name}'."
        meant = _option(error)
    elif command := re.match(r"No such command '(.+?)'\.", error.format_message()):
        sentence = command[0]
        meant = _command(command[1], error.ctx)
    else:
        sentence = error.format_message()
    return sentence, f"did you mean '{meant}'? {help_of}" if meant else help_of


def _option(error: click.NoSuchOption) -> str | None:
    typed = error.option_name
    options = {name for param in (error.ctx.command.params if error.ctx else ()) for name in param.opts}
    there = {word: name for word, name in ELSEWHERE.items() if name in options}
    there |= {f"--{name.removeprefix('--set ').replace('_', '-')}": name for name in options if " " in name}
    known = [name for name in options if name.startswith("--") and " " not in name] + [*there]
    near = difflib.get_close_matches(typed, sorted(known), 1, NEAR)
    return there.get(near[0], near[0]) if near else None


def _command(typed: str, ctx: click.Context | None) -> str | None:
    if ctx is None or not isinstance(ctx.command, click.Group):
        return None
    near = difflib.get_close_matches(typed.lower(), ctx.command.list_commands(ctx), 1, NEAR)
    return near[0] if near else None
