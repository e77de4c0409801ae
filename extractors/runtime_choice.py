"""Which runtime a job's networks use on this machine, and the networks that were converted for it."""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lstr.errors import OutputError
from lstr.extractors.devices import processor_lines
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.runtimes import AUTO, RUNTIMES, choose_runtime
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import RunOptions, TwoStream
from lstr.files.atomic import replacing, sweep, write_text
from lstr.files.content import read_object
from lstr.files.home import home

FOLDER = "runtimes"  # of the home folder
SUFFIX = ".network"
CHOICES = "choices.json"
MOST = 2 << 30  # bytes of converted networks
CHECK = 4  # bytes of a file's sum, its first


@dataclass(frozen=True)
class ConvertedNetworks:
    """Converted networks as files of a folder, a `Store` of `runtimes.conversion`; the oldest make room.

    Processes may share it. What is damaged or cannot be written is converted again.
    """

    folder: Path
    most: int = MOST
    """Bytes that it keeps."""

    def read(self, key: str) -> bytes | None:
        """See Store."""
        path = self.folder / f"{key}{SUFFIX}"
        try:
            content = path.read_bytes()
        except OSError:
            return None
        kept = content[CHECK:]
        if zlib.crc32(kept).to_bytes(CHECK, "little") != content[:CHECK]:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # of its last use
        return kept

    def write(self, key: str, parts: Sequence[bytes]) -> None:
        """See Store."""
        check = 0
        for part in parts:
            check = zlib.crc32(part, check)
        with suppress(OutputError, OSError):
            with replacing(self.folder / f"{key}{SUFFIX}") as temporary, temporary.open("wb") as file:
                file.writelines([check.to_bytes(CHECK, "little"), *parts])
            self._make_room()

    def _make_room(self) -> None:
        sweep(self.folder)
        total = 0
        for path, stat in sorted(self._files(), key=lambda found: -found[1].st_mtime):
            total += stat.st_size
            if total > self.most:
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process may have removed it
                yield path, path.stat()


def run_on(twostream: TwoStream, wanted: str = AUTO, threads: int | None = None) -> TwoStream:
    """The same networks, computed by a runtime in so many threads, None for one per core.

    `auto` is what was found fastest on this machine, where it was measured. Raises NetworkRuntimeError for one that is
    not installed or does not compute on the networks' device.
    """
    choose_runtime(wanted, twostream.device)
    store, fastest = ConvertedNetworks(home() / FOLDER), recall(twostream.recipe)
    return twostream.again(options=RunOptions(wanted, fastest, store, threads or default_workers()))


def remember(recipe: Recipe, runtime: str) -> None:
    """Let `auto` mean this runtime from now on, for these networks on this machine. Raises OutputError."""
    if runtime not in RUNTIMES:
        raise ValueError(f"{runtime!r} is no runtime")
    path = home() / FOLDER / CHOICES
    write_text(path, json.dumps((read_object(path) or {}) | {_key(recipe): runtime}, indent=1, sort_keys=True) + "\n")


def recall(recipe: Recipe) -> str | None:
    """The runtime that was remembered for these networks on this machine, in these versions; None where none was."""
    runtime = (read_object(home() / FOLDER / CHOICES) or {}).get(_key(recipe))
    return runtime if runtime in RUNTIMES else None


def _key(recipe: Recipe) -> str:
    """Networks by their layers and images, not their weights, on this processor with these versions."""
    parts = {stream: (part.network, part.config, part.images) for stream, part in recipe.parts.items()}
    about = [parts, recipe.crop, recipe.precision, processor_lines(), [_version(name) for name in RUNTIMES]]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
