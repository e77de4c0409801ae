"""The weights that each stream's network begins with: from a file, a weights folder or a model file, or random."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lstr.errors import UnfitError, WeightsError
from lstr.extractors.backbones.network import Network
from lstr.extractors.backbones.networks import known_network
from lstr.extractors.networks.weights import identify
from lstr.extractors.presets import Preset
from lstr.extractors.streams import STREAMS, model_stream
from lstr.extractors.weights.archive import Archive, is_archive, is_member
from lstr.extractors.weights.model_card import network_file, origin_of, published_as, read_card
from lstr.extractors.weights.published_files import Origin, dataset_of, sha256_of
from lstr.pipelines.weights.published import find_weights

RANDOM = "random"


@dataclass(frozen=True)
class Initial:
    """What one network begins with; without a path, seeded random weights."""

    path: Path | None = None
    sha256: str | None = None
    """SHA-256 of the file."""
    crossed: bool = False
    """Whether it is of an RGB network and the stream is flow: its first layer is made for flow (TSN, section 3.3)."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each video file, by id, that these weights have seen as far as they say."""
    origin: Origin | None = None
    """The file that they are or began with, whose licence goes on into what is trained."""
    dataset: str | None = None
    """What the weights were trained on: a published data set, as `imagenet`, or `custom`."""


def initial_weights(preset: Preset, shared: str | None, by_stream: Mapping[str, str | None]) -> dict[str, Initial]:
    """What each stream of a preset begins with.

    shared: of all streams that it fits: the path of a weights file or folder, the name or recipe of fetched weights, or
    `random`; None for those of the preset. by_stream: the same of one stream alone, which must fit. Raises WeightsError
    or MissingPathError.
    """
    for stream in STREAMS:
        if by_stream.get(stream) and stream not in preset.streams:
            raise WeightsError(f"--init {stream} is of a stream that is not trained.", f"leave out --init {stream}.")
    found, unfit = {}, []
    for stream in preset.streams:
        network, own = preset.parts[stream].network, by_stream.get(stream)
        named = own or shared or preset.parts[stream].weights or RANDOM
        try:
            found[stream] = _initial(named, stream, known_network(network), network)
        except UnfitError as error:
            if own:
                raise
            found[stream] = Initial()
            unfit.append(error)
    sharing = [stream for stream in preset.streams if not by_stream.get(stream)]
    if unfit and len(unfit) == len(sharing):
        raise unfit[0]
    return found


def _initial(named: str, stream: str, entry: Network | None, network: str) -> Initial:
    if named == RANDOM:
        return Initial()
    path = _file(named, stream)
    has, of = identify(path, entry)
    crossed = (of, stream) == ("rgb", "flow")
    if has != network:
        raise UnfitError(
            f"{path} holds a {has}, and the {stream} network here is a {network}.",
            f"give weights of a {network} as --init {stream}=PATH, or train another network: "
            f"--set recipe.{stream}.network={has}.",
        )
    if of != model_stream(stream) and not crossed:
        sentence = f"{path} holds {of} weights, and a network of the {stream} stream cannot begin with them."
        raise UnfitError(sentence, f"give {stream} weights, or random.")
    card = read_card(path)
    seen = card.seen if card else {}
    return Initial(path, sha256_of(path), crossed, seen, origin_of(path), dataset_of(path))


def _file(named: str, stream: str) -> Path:
    """The file that is meant; also a fetched one of RGB, or the RGB network of a weights folder."""
    published = published_as(named)
    if (Path(named).is_dir() and not published) or is_archive(named):
        files = [network_file(named, name) for name in dict.fromkeys((stream, "rgb"))]
        found = next((file for file in files if _exists(file)), None)
        if found is None and any(_exists(network_file(named, name)) for name in STREAMS):
            raise UnfitError(f"{named} holds no {stream} network.", f"give --init {stream}=PATH, or random.")
        if found is None:
            raise WeightsError(
                f"{named} holds no network.",
                "give a weights file, a folder of `lstr finetune`, or a model file with networks.",
            )
        return found
    return Path(find_weights(named, "rgb" if {entry.stream for entry in published} == {"rgb"} else stream))


def _exists(file: Path) -> bool:
    """Whether a weights file is there, or is in its model file."""
    return file.name in Archive(file.parent) if is_member(file) else file.is_file()
