"""Videos, and a weights folder of random networks; their cards state that they were trained on two videos."""

from dataclasses import dataclass
from pathlib import Path

import torch

from lstr.extractors.networks.build import randomise
from lstr.extractors.networks.manifest import fit_name
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.weights_file import ModelCard, WeightSources, network_file, sha256_of
from lstr.extractors.networks.weights_folder import WeightsFolder, write_network, write_weights
from lstr.extractors.streams import CHANNELS_OF
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import find_videos
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.backbones import build_backbone
from tests.support.small_set import PICTURES, small_preset

NAMES = {"rgb": "mobilenetv3", "flow": "shufflenetv2"}
CLASSES = ("Background", "fall")
SMALL = small_preset(NAMES, {**PICTURES, "flow_algorithm": "dis"})
RGB_DIM = 576


@dataclass(frozen=True)
class FinetunedSet:
    """Weights, and three videos by id: of fold 1, of fold 2, and one on which no network was trained."""

    videos: dict[str, Path]
    weights: WeightsFolder

    @property
    def training(self) -> dict[str, str]:
        """SHA-256 of the first two videos by id."""
        return self.weights.about["training"]


def write_finetuned(root: Path) -> FinetunedSet:
    """Write networks with random weights for all videos and for each fold."""
    render_scenes(root, SceneConfig(n_videos=3, n_testing=1, seconds=4.0, width=96, height=64))
    videos = find_videos([root / "videos"])
    training = {video_id: sha256_of(videos[video_id]) for video_id in sorted(videos)[:2]}
    folds = {video_id: k for k, video_id in enumerate(training, 1)}
    path = root / "fälle"
    for stream, network in NAMES.items():
        backbone = build_backbone(network, CHANNELS_OF[stream])
        randomise(backbone, 0)
        state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
        head = {"weight": torch.ones(len(CLASSES), NETWORKS[network].width), "bias": torch.zeros(len(CLASSES))}
        state |= {f"cls_head.fc_cls.{name}": tensor for name, tensor in head.items()}
        stem = next(name for name, tensor in state.items() if tensor.dim() == 4)
        for fold in (None, 1, 2):
            trained_on = {i: sha256 for i, sha256 in training.items() if folds[i] != fold}
            card = ModelCard(fit_name(path), stream, network, CLASSES, trained_on, 0.5, fold)
            write_network(path, state | {stem: state[stem] * (1 + (fold or 0))}, card)
    sources = WeightSources({stream: str(network_file(path, stream)) for stream in NAMES})
    recipe = build_twostream(SMALL.narrowed(list(NAMES)), sources, "cpu", "float32").recipe
    return FinetunedSet(videos, write_weights(path, recipe, folds, training, {"seconds": 1.0}))
