"""What is trained of a stream: its network with a head for these classes, its initial weights, its optimiser.

Initial weights are random, or come from a file, a weights folder or a model file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn import functional

from lstr.errors import UnfitError, WeightsError
from lstr.extractors.flow.workers import choose_backend
from lstr.extractors.networks.archive import Archive, is_archive, is_member
from lstr.extractors.networks.backbones import speed_up_depthwise
from lstr.extractors.networks.build import backbone_of, identify, load_weights, network_recipe, randomise
from lstr.extractors.networks.manifest import dataset_of, origin_of, published_as
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.published import find_weights
from lstr.extractors.networks.weights_file import Origin, network_file, read_card, sha256_of
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import NetworkRecipe
from lstr.extractors.streams import STREAMS, model_stream
from lstr.pipelines.training.network_config import FinetuneConfig, resolve, trainable
from lstr.pipelines.training.run import FACTOR

RANDOM = "random"
MOMENTUM = 0.9  # published TSN
HEAD_STD = 0.01  # of the classifier's first weights (published TSN)
MIDDLE = 127.5  # of the scale of bytes


@dataclass(frozen=True)
class Initial:
    """The weights that one network begins with; without a path, seeded random weights."""

    path: Path | None = None
    sha256: str | None = None  # SHA-256 of the file
    crossed: bool = False  # whether RGB weights begin a flow network: its first layer is averaged (TSN, section 3.3)
    seen: Mapping[str, str] = field(default_factory=dict)  # SHA-256 by id of the videos that they were trained on
    origin: Origin | None = None  # the published file that they come from; its licence applies to the trained network
    dataset: str | None = None  # what the weights were trained on: a published data set such as `imagenet`, or `custom`


def initial_weights(preset: Preset, shared: str | None, by_stream: Mapping[str, str | None]) -> dict[str, Initial]:
    """Return the initial weights of each stream of a preset.

    Args:
        shared: Weights for all streams that they fit: the path of a weights file or folder, the name or recipe of
            published weights, or `random`; None for the weights of the preset.
        by_stream: The same for single streams, which they must fit.

    Raises WeightsError or MissingPathError for weights that do not exist or do not fit.
    """
    for stream in STREAMS:
        if by_stream.get(stream) and stream not in preset.streams:
            raise WeightsError(f"--init {stream} names a stream that is not trained.", f"leave out --init {stream}.")
    found, unfit = {}, []
    for stream in preset.streams:
        own = by_stream.get(stream)
        try:
            named = own or shared or preset.parts[stream].weights or RANDOM
            found[stream] = Initial() if named == RANDOM else find_initial(named, stream, preset.parts[stream].network)
        except UnfitError as error:
            if own:
                raise
            found[stream] = Initial()
            unfit.append(error)
    if unfit and len(unfit) == sum(not by_stream.get(stream) for stream in preset.streams):
        raise unfit[0]
    return found


def find_initial(named: str, stream: str, network: str) -> Initial:
    """Return the initial weights of one network, by a path or a name. Raises UnfitError if they are of another."""
    published = published_as(named)
    if (Path(named).is_dir() and not published) or is_archive(named):
        files = [network_file(named, name) for name in (stream, "rgb")]
        present = [f for f in files if (f.name in Archive(f.parent) if is_member(f) else f.is_file())]
        if not present:
            hint = f"use --init {stream}=PATH with a weights file, folder of `lstr finetune` or model file, or random."
            raise UnfitError(f"{named} contains no {stream} network.", hint)
        path = present[0]
    else:
        path = Path(find_weights(named, "rgb" if {entry.stream for entry in published} == {"rgb"} else stream))
    architecture, of = identify(path, find_network(network))
    crossed = (of, stream) == ("rgb", "flow")
    if architecture != network:
        raise UnfitError(
            f"{path} contains a {architecture}, but the {stream} network is a {network}.",
            f"use weights of a {network} as --init {stream}=PATH, or train another network: "
            f"--set recipe.{stream}.network={architecture}.",
        )
    if of != model_stream(stream) and not crossed:
        sentence = f"{path} contains {of} weights, which cannot initialise the {stream} network."
        raise UnfitError(sentence, f"use {stream} weights, or random.")
    card = read_card(path)
    return Initial(path, sha256_of(path), crossed, card.seen if card else {}, origin_of(path), dataset_of(path))


@dataclass(frozen=True)
class NetworksToTrain:
    """The streams of a preset with the sizes of their images, their settings and initial weights."""

    preset: Preset
    configs: Mapping[str, FinetuneConfig]
    initial: Mapping[str, Initial]

    def seeing(self, shape: float | None) -> "NetworksToTrain":
        """Return the same for videos of this shape, as `Preset.seeing`."""
        preset, configs = self.preset.seeing(shape), dict(self.configs)
        for stream, part in preset.parts.items():
            if part.follows and part.size:
                configs[stream] = configs[stream].replace(size=part.size)
        return replace(self, preset=preset, configs=configs)


def settle(
    features: tuple[str | Preset, str, str | None],
    settings: Mapping[str, str],
    init: str | None,
    device: str,
    inits: Mapping[str, str | None] = MappingProxyType({}),
) -> NetworksToTrain:
    """Choose everything about networks, before anything takes long.

    Args:
        features: recipe, streams and flow algorithm, as for `trainable`.
        settings: as for `resolve`.
        init: with `inits` as for `initial_weights`.

    Raises ConfigError, RecipeError, WeightsError or FlowError if these do not exist or do not fit together.
    """
    recipe, stream, algorithm = features
    preset = trainable(recipe, stream, algorithm)
    initial = initial_weights(preset, init, inits)
    preset, configs = resolve(preset, {name: begins.dataset for name, begins in initial.items()}, settings, device)
    if preset.algorithm:
        choose_backend(preset.algorithm, "auto")
    return NetworksToTrain(preset, configs, initial)


class Head(nn.Module):
    """TSN's head: the mean over an image, the mean over segments, dropout and a linear classifier."""

    def __init__(self, width: int, n_classes: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.fc_cls = nn.Linear(width, n_classes)
        nn.init.normal_(self.fc_cls.weight, std=HEAD_STD)
        nn.init.zeros_(self.fc_cls.bias)

    def forward(self, maps: Tensor, n_segments: int) -> Tensor:
        """(N · segments, D, h, w) → class scores (N, C) float32, outside autocast."""
        with torch.autocast(maps.device.type, enabled=False):
            features = functional.adaptive_avg_pool2d(maps.float(), 1)  # (N · segments, D, 1, 1)
            features = features.unflatten(0, (-1, n_segments)).mean(1)  # (N, D, 1, 1)
            features = features.flatten(1)[:, : self.fc_cls.in_features]  # of poses also the people beyond the features
            return self.fc_cls(self.dropout(features))


class Recogniser(nn.Module):
    """The network of a stream, as it makes features, and a head: `backbone` and `cls_head`, as mmaction2 calls them.

    `prepare` turns bytes into the input of `forward`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, head: Head, part: NetworkRecipe, config: FinetuneConfig):
        super().__init__()
        self.backbone, self.cls_head, self.bgr = backbone, head, part.bgr
        self.config = config
        self.register_buffer("mean", torch.tensor(part.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(part.std).view(-1, 1, 1), persistent=False)

    def scaled(self, images: Tensor) -> Tensor:
        """Scale images (N, segments, C, H, W) uint8 on any device to float32, as the network takes them."""
        images = images.to(self.mean.device).contiguous()
        return ((images[:, :, [2, 1, 0]] if self.bgr else images) - self.mean) / self.std

    def prepare(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scale a batch, and change and blend its images as the settings say.

        Returns images, and labels (N,), or the share of each class (N, C) if samples are blended.
        """
        config, device, n = self.config, self.mean.device, len(images)
        images, labels = images.to(device), labels.to(device)
        if config.contrast or config.brightness:  # of each sample; nothing is cut at 0 and 255
            factor, levels = (torch.rand(2, n) * 2 - 1).to(device).view(2, n, 1, 1, 1, 1)
            images = (images - MIDDLE) * (1 + factor * config.contrast) + MIDDLE + levels * config.brightness
        images = self.scaled(images)
        if not config.mixup:
            return images, labels
        shares = functional.one_hot(labels, self.cls_head.fc_cls.out_features).float()
        share, order = Beta(config.mixup, config.mixup).sample(), torch.randperm(n)
        return share * images + (1 - share) * images[order], share * shares + (1 - share) * shares[order]

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of what `prepare` returned, the mean of the samples' cross entropies."""
        scores = self.cls_head(self.backbone(images.flatten(0, 1)), images.shape[1])  # (N, C)
        if labels.dim() == 1:
            return functional.cross_entropy(scores, labels)
        return -(labels * functional.log_softmax(scores, 1)).sum(1).mean()


def recogniser(
    stream: str, preset: StreamPreset, n_classes: int, config: FinetuneConfig, initial: Initial
) -> Recogniser:
    """Build the network of a stream, as it makes features, and a head for these classes. Raises WeightsError.

    initial: the network's first weights; random ones follow from the seed, as the head's always do.
    """
    part = network_recipe(stream, preset)
    network = part.entry
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = backbone_of(stream, part, network)
        head = Head(part.dim, n_classes, config.dropout)
    speed_up_depthwise(backbone)
    model = Recogniser(backbone.train(), head, part, config)
    if initial.path:
        load_weights(backbone, initial.path, network, inflate=initial.crossed)
        return model
    randomise(backbone, config.seed)
    if network.depthwise:
        # Torch's own initial weights instead of He's, which are 2.4 times as large: before a batch norm that means so
        # much smaller steps, and on the first fold of UT-Interaction an mAP of .53 instead of .60.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            for module in backbone.modules():
                if isinstance(module, nn.Conv2d):
                    module.reset_parameters()
    for name, layer in backbone.named_modules():
        if network.last_norm and name.endswith(network.last_norm):  # every residual block begins as the identity
            nn.init.zeros_(layer.weight)
    return model


def batch_norms(model: Recogniser) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the batch norms of a recogniser's network, in their order."""
    return [module for module in model.backbone.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def make_optimiser(model: Recogniser, config: FinetuneConfig) -> torch.optim.Optimizer:
    """Return AdamW or stochastic gradient descent on the trained weights of a recogniser."""
    body, head = ([p for p in part.parameters() if p.requires_grad] for part in (model.backbone, model.cls_head))
    groups = [{"params": [*body, *head], FACTOR: 1.0}]
    if config.head_lr:
        groups = [{"params": body, FACTOR: 1.0}, {"params": head, FACTOR: config.head_lr / config.lr}]
    if config.optimiser == "adamw":
        # one pass over the weights instead of a dozen: for ten million of them half of the optimiser's time
        return torch.optim.AdamW(groups, config.lr, weight_decay=config.weight_decay, fused=True)
    return torch.optim.SGD(groups, config.lr, momentum=MOMENTUM, weight_decay=config.weight_decay)
