"""Which runtime a job's networks use on this machine."""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version

from lstr.extractors.devices import processor_lines
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.runtime import AUTO, RUNTIMES, Store, choose_runtime
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import RunOptions, TwoStream
from lstr.files.atomic import write_text
from lstr.files.content import read_object
from lstr.files.home import home

FOLDER = "runtimes"  # in the home folder
CHOICES = "choices.json"


def run_on(twostream: TwoStream, wanted: str = AUTO, threads: int | None = None) -> TwoStream:
    """Return the same networks, computed by a runtime in this many threads, None for one per core.

    `auto` is the fastest on this machine, where it was measured. Raises NetworkRuntimeError for one that is not
    installed or does not compute on the networks' device.
    """
    choose_runtime(wanted, twostream.device)
    store, fastest = Store(home() / FOLDER), recall(twostream.recipe)
    return twostream.again(options=RunOptions(wanted, fastest, store, threads or default_workers()))


def remember(recipe: Recipe, runtime: str) -> None:
    """Let `auto` mean this runtime from now on, for these networks on this machine. Raises OutputError."""
    if runtime not in RUNTIMES:
        raise ValueError(f"{runtime!r} is not a runtime")
    path = home() / FOLDER / CHOICES
    write_text(path, json.dumps((read_object(path) or {}) | {_key(recipe): runtime}, indent=1, sort_keys=True) + "\n")


def recall(recipe: Recipe) -> str | None:
    """Return the runtime that was remembered for these networks on this machine, in these versions, if any."""
    runtime = (read_object(home() / FOLDER / CHOICES) or {}).get(_key(recipe))
    return runtime if runtime in RUNTIMES else None


def _key(recipe: Recipe) -> str:
    """Networks by their layers and images, not their weights, on this processor with these versions."""
    parts = {stream: (part.network, part.config, part.images) for stream, part in recipe.parts.items()}
    versions = []
    for package in RUNTIMES:
        try:
            versions.append(version(package))
        except PackageNotFoundError:
            versions.append("")
    about = [parts, recipe.crop, recipe.precision, processor_lines(), versions]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
