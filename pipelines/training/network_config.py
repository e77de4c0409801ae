"""Training settings of the feature networks, with defaults found on a few dozen short videos."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from lstr.errors import ConfigError, RecipeError
from lstr.extractors.devices import fast_precision
from lstr.extractors.networks.crops import View
from lstr.extractors.networks.network import FEW_WEIGHTS, RESNET50, SMALLEST, Network, find_network
from lstr.extractors.presets import FAST, KINETICS, PRESETS, Preset
from lstr.extractors.streams import STREAMS
from lstr.pipelines.features.recipes import choose_recipe
from lstr.settings import Amount, Count, Positive, PositiveAmount, Settings, Share, override

OneOrMore = Annotated[float, Meta(ge=1)]


class FinetuneConfig(Settings, frozen=True):
    """Training settings of one stream's recogniser; `--set NAME=VALUE` changes one."""

    epochs: Count = 30
    """Number of epochs; 0 keeps the initial weights."""
    draws: Count = 0
    """Samples per epoch; 0 for as many as the training videos have chunks, and `fewest_draws` at least."""
    fewest_draws: Positive = 512  # or an epoch of a few short videos would be a handful of steps
    samples: Literal["segments", "chunks"] = "segments"
    """What is drawn: labelled `segments`, and pieces of background as long; or single `chunks` of them all."""
    batch_size: Positive = 24
    """Samples per step, of all processes together, each of `segments` images."""
    segments: Positive = 1
    """Parts that a labelled segment is cut in, a chunk drawn from each; their class scores are averaged (TSN)."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """`adamw`, or `sgd` with momentum 0.9 (published TSN)."""
    lr: PositiveAmount = 1e-3
    head_lr: Amount = 0.0
    """The rate of the classifier, which always begins with random weights; 0 for `lr`."""
    weight_decay: Amount = 0.05
    warmup_steps: Count = 0
    """Steps in which the rate rises; then half a cosine to 0. 0 for a twentieth of all steps."""
    dropout: Share = 0.5
    """Before the classifier."""
    partial_bn: bool = False
    """Whether all batch norms but the first keep their statistics (TSN, section 3.3), which random weights have not."""
    mirror: bool = True
    """Whether images are mirrored half of the time; not where left and right are different actions."""
    mixup: Amount = 0.4
    """Parameter of the Beta distribution that blends two samples of a step (Zhang et al. 2018); 0 blends none."""
    colour: Share = 0.0
    """Share by which contrast, brightness and saturation of RGB images are changed; some are grey then, or swapped."""
    contrast: Share = 0.0
    """Share by which the contrast of images of any kind is changed, around the middle of the scale."""
    brightness: Amount = 0.0
    """Levels of 255 by which images of any kind are made brighter or darker."""
    shake: Share = 0.0
    """Largest simulated camera movement between frames, relative to the width; half of the samples of `grey`,
    `difference` and `change` are shifted. 0 disables it."""
    balanced: Amount = 1.0
    """How evenly classes are drawn: the probability of a class is divided by its number of samples to this power. 1 (or
    true) draws all classes equally often, 0 (or false) in proportion to their samples."""
    crop_range: Amount = 0.0
    """How many times larger than `short_side`, or than `size`, images are before what the network sees is cut from
    anywhere in them; 0 cuts parts of TSN's four sizes in 13 places."""
    zoom: OneOrMore = 1.0
    """Maximum zoom of crops, as if the camera were nearer: the size of a crop is drawn between the input of the network
    divided by this factor and the whole image of `crop_range`. 1 always takes the input of the network."""
    short_side: Positive = 64
    """Pixels that an image is fitted to, and the sides of what is cut from it. The features will be made so too."""
    crop: Positive = 64
    size: tuple[int, ...] = ()
    """Height and width of the network's input from the whole frame, as in `112,149`; empty for a square of `crop`."""
    margin: OneOrMore = 1.15
    """The frame is resized to this many times `size`; features use its centre."""
    early_size: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Sides of images in the first half of the epochs, relative to the later ones; small images take less time."""
    precision: Literal["fast", "float32", "bf16"] = "fast"
    """`bf16` computes in bfloat16 where that is safe (autocast); weights and optimiser stay float32. `fast` does so
    where device and network gain by it, and `float32` never does."""
    seed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size and (len(self.size) != 2 or min(self.size) < SMALLEST):
            hint = f"use a height and a width of {SMALLEST} pixels or more, as in size=112,149."
            raise ConfigError(f"size is {','.join(map(str, self.size))}.", hint)
        if 0 < self.crop_range < 1:
            raise ConfigError(f"crop_range is {self.crop_range}.", "use 1 or more, or 0 for crops of four sizes.")
        if self.zoom > 1 and not self.crop_range:
            raise ConfigError(
                f"zoom is {self.zoom}, but crop_range is 0.", "set crop_range to 1 or more, or zoom to 1."
            )
        if self.samples == "chunks" and self.segments > 1:
            raise ConfigError(
                f"samples is 'chunks', but segments is {self.segments}.", "use segments=1, or samples=segments."
            )
        if not SMALLEST <= self.crop <= self.short_side:
            raise ConfigError(
                f"crop is {self.crop}, but short_side is {self.short_side}.",
                f"use a crop from {SMALLEST} to short_side.",
            )

    def draws_of(self, n_chunks: int) -> int:
        """Samples per epoch, where the training videos have N chunks."""
        return self.draws or max(self.fewest_draws, n_chunks // self.segments)

    def images_of(self, n_chunks: int) -> int:
        """Images of all epochs, where the training videos have N chunks."""
        return self.epochs * self.draws_of(n_chunks) * self.segments

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of what the network sees, in pixels."""
        height, width = self.size or (self.crop, self.crop)
        return height, width

    def size_in(self, epoch: int) -> tuple[int, int]:
        """Height and width of the images of an epoch, in pixels."""
        height, width = self.input_size
        share = self.early_size if epoch < self.epochs // 2 else 1.0
        return round(share * height), round(share * width)

    @property
    def mean_area(self) -> float:
        """Mean area of an image over all epochs, relative to `input_size`."""
        areas = [math.prod(self.size_in(epoch)) for epoch in range(self.epochs)]
        return sum(areas) / max(1, len(areas) * math.prod(self.input_size))

    @property
    def view(self) -> View:
        """How an image is resized and its centre is cropped."""
        return View(self.input_size, 1, short_side=None if self.size else self.short_side, margin=self.margin)

    @property
    def training_view(self) -> View:
        """How an image is resized for training, before a random crop."""
        if self.size:
            return View(self.input_size, 1, margin=self.crop_range or self.margin)
        return View(self.input_size, 1, short_side=round(self.short_side * (self.crop_range or 1)))


# From random weights, by stream; those of flow and rgb found on a fold of UT-Interaction (benchmarks/finetuned.py).
RANDOM = {**dict.fromkeys(STREAMS, FinetuneConfig()), "rgb": FinetuneConfig(epochs=20, colour=0.5)}
# From trained weights; after the published TSN (Wang et al. 2016, section 4.1; its batch is 256, its rate falls in
# steps), and not measured here, for want of such weights.
PUBLISHED = FinetuneConfig(
    batch_size=16,
    segments=3,
    optimiser="sgd",
    lr=1e-3,
    weight_decay=5e-4,
    mixup=0.0,
    partial_bn=True,
    short_side=256,
    crop=224,
)
# From ImageNet weights, for few videos: 448 steps of 32 images. Found for EfficientNet-Lite0 on UT-Interaction. Over
# three folds an RNN on `difference` had mAP .726, .748 and .753 (three seeds), and .735 with half of the epochs, twice
# the rate and no mixup. With an `early_size` of 0.714 (80 of 112 pixels) it had .764 instead of .739 (seed 0).
PICTURES = FinetuneConfig(
    epochs=8,
    fewest_draws=1792,
    samples="chunks",
    batch_size=32,
    lr=4e-4,
    head_lr=3e-3,
    weight_decay=0.02,
    warmup_steps=30,
    dropout=0.0,
    contrast=0.3,
    brightness=20.0,
    shake=0.006,
    balanced=0.5,
    crop_range=1.15,
    early_size=0.714,
    zoom=1.33,
    short_side=112,
    crop=112,
)


def trainable(
    recipe: str | Preset,
    stream: str,
    algorithm: str | None,
    networks: Mapping[str, str] = MappingProxyType({}),
    precision: str | None = None,
) -> Preset:
    """Return the preset or recipe file that features will be made by, with changes as for `choose_recipe`.

    Raises RecipeError for a whole recipe with trained networks, or a network that cannot be trained here.
    """
    preset = choose_recipe(recipe, stream, networks, algorithm, precision)
    if not isinstance(preset, Preset):
        raise RecipeError(
            f"{recipe} is a complete recipe with trained networks.",
            f"choose one of {', '.join(PRESETS)}, or a recipe file; name weights with --init.",
        )
    for name in preset.streams:
        trainable_network(preset.parts[name].network, name)
    return preset


def trainable_network(network: str, stream: str) -> Network:
    """The entry of a network that can be trained. Raises RecipeError for another."""
    entry = find_network(network)
    if entry is None:
        raise RecipeError(
            f"{network} cannot be trained here.", f"train a known one: --set recipe.{stream}.network=resnet50."
        )
    return entry


def defaults(stream: str, dataset: str | None, network: Network = RESNET50) -> FinetuneConfig:
    """Return the default settings of a stream, for initial weights of a data set, or random ones (None)."""
    if stream == "pose" and dataset:  # it knows what people look like
        return PICTURES.replace(epochs=0)
    if dataset == "imagenet":
        # Grey images are like those of ImageNet, and of few videos a network learns the place and the people: on three
        # folds of UT-Interaction grey with difference had per-frame mAP .716 after 2 epochs, .781 without training.
        # `change` compares what ImageNet taught the network to see.
        if stream in ("grey", "change"):
            return PICTURES.replace(epochs=0)
        # what has a sign has a middle: to flow another brightness would be a moving camera
        return PICTURES.replace(brightness=0.0) if stream in ("flow", "difference") else PICTURES
    own: Mapping[str, Any] = FEW_WEIGHTS.get(stream, {}) if network.depthwise else {}
    return PUBLISHED if dataset else RANDOM[stream].replace(**own)


def resolve(
    preset: Preset, dataset: Mapping[str, str | None], settings: Mapping[str, str], device: str
) -> tuple[Preset, dict[str, FinetuneConfig]]:
    """The settings of each stream, nothing left to choose, and the preset with the sizes of images that they have.

    dataset: as for `defaults`, by stream. settings: NAME for all streams, rgb.NAME or flow.NAME for one; `epochs` of
    all leave a network as it begins that stays so. A preset with other sizes than `kinetics` keeps them where no
    setting changes them. Raises ConfigError for an unknown name or value.
    """
    networks = {stream: trainable_network(part.network, stream) for stream, part in preset.parts.items()}
    plain = {stream: defaults(stream, dataset[stream], networks[stream]) for stream in networks}
    larger = max(plain.values(), key=lambda config: config.crop)  # trained weights know images of their size
    multiple = math.lcm(*(network.multiple for network in networks.values()))
    # rounded up to a size at which the layers of all networks meet
    crop = -(-larger.crop // multiple) * multiple
    own = {"short_side": max(larger.short_side, crop), "crop": crop}
    own |= {n: getattr(preset, n) for n in own if getattr(preset, n) != getattr(KINETICS, n)}
    for key in settings:
        stream, dot, _ = key.partition(".")
        if dot and stream not in preset.streams:
            what = "belongs to a stream that is not trained" if stream in STREAMS else "is not a setting"
            streams = ", ".join(preset.streams)
            raise ConfigError(f"{key!r} {what}.", f"write --set NAME=VALUE, or STREAM.NAME with one of: {streams}.")
    shared = {name: value for name, value in settings.items() if "." not in name}
    configs = {}
    for stream in preset.streams:
        alone = {n.partition(".")[2]: value for n, value in settings.items() if n.startswith(f"{stream}.")}
        part = preset.parts[stream]
        seen = {"size": part.size, "margin": part.margin} if part.size else {}
        stays = plain[stream].epochs == 0  # unless epochs of its own are set
        of_all = {name: value for name, value in shared.items() if not (stays and name == "epochs")}
        config = override(plain[stream], {**own, **seen, **of_all, **alone})
        if config.precision == FAST:
            config = config.replace(precision=fast_precision(device))
        # a network that takes multiples of some pixels only may not take the smaller images
        if not all(map(networks[stream].fits, config.size_in(0))):
            config = config.replace(early_size=1.0)
        configs[stream] = config
    sizes = {(config.short_side, config.crop) for config in configs.values() if not config.size}
    if len(sizes) > 1:
        sentence = "The streams that see a square have images of different sizes."
        raise ConfigError(sentence, "set the same short_side and crop for all.")
    short_side, crop = sizes.pop() if sizes else (preset.short_side, preset.crop)
    changed = {}
    for stream, config in configs.items():
        part, network = preset.parts[stream], networks[stream]
        if not all(map(network.fits, config.input_size)):
            seen_as = f"size is {','.join(map(str, config.size))}" if config.size else f"crop is {crop}"
            raise ConfigError(f"{seen_as}, which does not fit the layers of {network.name}.", f"use {network.sides}.")
        crops = part.crops if config.mirror or part.crops != 2 else 1  # nor is a feature then to be of a mirror image
        size, margin = (config.input_size, config.margin) if config.size else (None, 1.0)
        follows = part.follows and not {"size", f"{stream}.size"} & settings.keys()
        changed[stream] = replace(part, crops=crops, size=size, margin=margin, follows=follows)
    return replace(preset.having(changed), short_side=short_side, crop=crop), configs
