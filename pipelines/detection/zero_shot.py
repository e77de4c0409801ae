"""Detection of what a phrase says, by a CLIP that no video has taught: kind toad without blocks.

The vectors of the last two seconds' frames are averaged and compared with those of the phrases and of a prompt for
everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lstr.checkpoints.loaded import FORMAT, Checkpoint
from lstr.errors import ConfigError
from lstr.extractors.backbones.network import CLIP
from lstr.extractors.backbones.networks import known_network
from lstr.extractors.devices import choose_device
from lstr.extractors.errors import WeightsError
from lstr.extractors.networks.clip_texts import encode_texts
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.published_files import published_by_hash, sha256_of
from lstr.extractors.weights.sources import WeightSources
from lstr.kinds import configure, make_model
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.weights.published import find_weights

NOTHING = "a video in which nothing happens"
"""The prompt of what is none of the phrases"""
RANDOM = "random"
"""In place of a file: seeded random weights, to try the way"""
WINDOW = 8  # chunks whose vectors are averaged: two seconds, as TOAD has it
KNOWN = "clip:ViT-B-32-quickgelu.openai"
REACH = (
    "zero-shot: no video has taught this model what the words mean. In published tables, online localisation of "
    "actions never seen reaches 9.24 mean mAP on THUMOS'14 with half of its classes unseen, and 20.11 mAP at an IoU of "
    "0.3 with a quarter unseen (OZ-TAL, arXiv 2605.09976); trained on all classes it reaches 44.6 mean mAP (OAT-OSN). "
    "CLIP itself names 63.3 % (ViT-B/32) to 68.3 % (ViT-B/16) of ImageNet's pictures right. Take it for a first look, "
    "not for an alarm."
)
GUESSES = "the CLIP has random weights: what it says has nothing to do with the video."


@dataclass(frozen=True)
class Said:
    """A model of phrases, and how it is to be run and told of."""

    checkpoint: Checkpoint
    weights: str | None
    """The file of the CLIP; None for random weights"""
    is_random: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person must know before the first score."""
        return (REACH, GUESSES) if self.is_random else (REACH,)


def say(
    phrases: Sequence[str],
    weights: str | None,
    network: str | None = None,
    background: str = NOTHING,
    device: str | None = None,
) -> Said:
    """A model whose classes are phrases, on a device, a GPU where there is one.

    weights: the file of a CLIP with both encoders, the name of a fetched one, or `random`. network: open_clip's name of
    it, as `clip:ViT-B-32`, which a fetched file tells by its hash. Raises ConfigError for phrases that cannot be
    classes or where no weights are named, and as `known_network` and `encode_texts`.
    """
    classes = (BACKGROUND, *_checked(phrases))
    if not weights:
        raise ConfigError(
            "Phrases need the weights of a CLIP, and none are named.",
            f"`lstr weights fetch {KNOWN}` brings OpenAI's (MIT); then add --weights {KNOWN}.",
        )
    path = None if weights == RANDOM else find_weights(weights, "rgb")
    name = network or _network_of(path)
    entry = known_network(name) if name.startswith(CLIP) else None
    if entry is None:
        raise ConfigError(f"{name} is no CLIP.", f"name one, as --set recipe.rgb.network={CLIP}ViT-B-32.")
    texts = torch.from_numpy(encode_texts(name, path, [background, *classes[1:]]))
    side = entry.smallest
    preset = Preset(StreamPreset(name), None, long_side=2 * side, short_side=side, crop=side)
    recipe = build_twostream(preset, WeightSources(rgb=path), "cpu").recipe
    made_of = {"rgb_dim": entry.width, "flow_dim": 0, "d_model": entry.width, "n_heads": 1, "dropout": 0.0}
    config = configure("toad", **made_of, work_length=WINDOW, l_enc=0, next_chunk=False)
    model = make_model(config, len(classes)).eval()
    torch.nn.init.zeros_(model.get_parameter("positions.weight"))
    model.take_texts(texts, texts)
    checkpoint = Checkpoint(
        model=model.to(choose_device(device)),
        config=config,
        classes=classes,
        recipe=recipe.to_dict(),
        metrics={},
        extra={},
        calibration={},
        versions={},
        format=FORMAT,
        path=Path(path or name.replace(":", "-")),
        assumed={},
    )
    return Said(checkpoint, path, path is None)


def _checked(phrases: Sequence[str]) -> list[str]:
    """The phrases without space around them. Raises ConfigError for one that cannot be a class."""
    found = [" ".join(phrase.split()) for phrase in phrases]
    for phrase in found:
        if not phrase or phrase in (BACKGROUND, AMBIGUOUS) or found.count(phrase) > 1:
            what = "is no phrase" if not phrase or phrase in (BACKGROUND, AMBIGUOUS) else "is said twice"
            raise ConfigError(f"{phrase!r} {what}.", "say what is to be seen, as: a person falls.")
    return found


def _network_of(path: str | None) -> str:
    """The CLIP that a file is known to be of, by its hash. Raises WeightsError."""
    entry = published_by_hash(sha256_of(path)) if path and Path(path).is_file() else None
    if entry is None or not entry.network.startswith(CLIP):
        raise WeightsError(
            f"{path or 'random weights'} does not say which CLIP it is.",
            f"name it by open_clip's name: --set recipe.rgb.network={CLIP}ViT-B-32, or {CLIP}ViT-B-32-quickgelu where "
            "the weights are OpenAI's.",
        )
    return entry.network
