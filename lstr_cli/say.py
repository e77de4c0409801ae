"""`--say` of `lstr detect`: phrases in place of a model, by a CLIP that no video has taught; and weights by stream."""

from typing import TYPE_CHECKING, Any

import click

from lstr_cli import console
from lstr_cli.options import together
from lstr_cli.settings import setting

if TYPE_CHECKING:  # it brings torch
    from lstr.checkpoints.loaded import Checkpoint

ByStream = dict[str, dict[str, str]]
"""Weights as an option of the networks"""
PREFIXES = ("clip=", "rgb=")
SETTINGS = {"rgb_network": "recipe.rgb.network", "background": "say.background"}

say_options = together(
    click.option(
        "--say",
        metavar="TEXT",
        multiple=True,
        help="In place of a model: a phrase, as in 'a person falls', found by the CLIP of --weights, which no video "
        "has taught; repeatable.",
    ),
    setting(
        "recipe.rgb.network",
        "rgb_network",
        metavar="NAME",
        help="With --say: the CLIP that the weights are of, by open_clip's name, as in clip:ViT-B-32.  [default: that "
        "of a fetched file]",
    ),
    setting("say.background", "background", metavar="TEXT", help="With --say: what is said of everything else."),
)
"""`say`, `rgb_network` and `background`"""


def check_say(options: dict[str, Any]) -> None:
    """Raise UsageError where phrases and other options do not go together."""
    if not options["say"]:
        for name, key in SETTINGS.items():
            if options[name]:
                raise click.UsageError(f"--set {key} is about phrases: add --say TEXT.")
        return
    if options["checkpoint"]:
        raise click.UsageError("--say is in place of a model: give no --model with it.")
    if options["settings"]:
        raise click.UsageError("--say makes a model of its own: give no --set model.… with it.")
    if len(options["weights"]) > 1:
        raise click.UsageError("--say takes the weights of one CLIP: give --weights once.")


def make_said(options: dict[str, Any]) -> "tuple[Checkpoint, ByStream]":
    """The model of the phrases and its weights, after what there is to know of it was said."""
    from lstr.pipelines.detection.zero_shot import NOTHING, say

    weights = next(iter(options["weights"]), None)
    for prefix in PREFIXES:
        weights = weights and weights.removeprefix(prefix)
    background = options["background"] or NOTHING
    made = say(options["say"], weights, options["rgb_network"], background, options["device"])
    reach, *others = made.notes
    console.say(reach)
    for note in others:
        console.warn(note)
    return made.checkpoint, {"weights": {"rgb": made.weights} if made.weights else {}}


def by_stream(weights: tuple[str, ...]) -> ByStream:
    """Named weights as an option of the networks."""
    if not weights:
        return {}
    from lstr.pipelines.weights.published import weights_by_stream  # brings torch

    return {"weights": {stream: path for stream, path in weights_by_stream(weights).items() if path}}
