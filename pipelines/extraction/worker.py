"""What extracts videos in a process of its own, made once from what can be sent to that process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lstr.extractors.devices import choose_device
from lstr.extractors.errors import MissingPathError
from lstr.extractors.flow.workers import default_workers, flow_workers
from lstr.extractors.twostream import rebuild_twostream
from lstr.pipelines.extraction.chunk_cache import caches_of
from lstr.pipelines.extraction.options import WorkerConfig
from lstr.pipelines.extraction.video import VideoExtractor
from lstr.pipelines.features.remote_folder import open_folder
from lstr.pipelines.networks.converted import run_on
from lstr.pipelines.networks.fold_networks import FoldNetworks


@dataclass(frozen=True)
class Ready:
    """A worker process has its networks. Not of `processes`, which is `__main__` there and would not be found here."""


@contextmanager
def open_worker(config: WorkerConfig) -> Iterator[VideoExtractor]:
    """The networks of a feature folder that was begun, and the threads of its flow.

    Raises MissingPathError where there is no such folder, RecipeError or WeightsError when its networks cannot be made
    here, FlowError without the flow backend.
    """
    folder = open_folder(config.output)
    if folder is None or folder.recipe is None:
        raise MissingPathError(
            f"{config.output} is not there.", "give [[output]] a folder, or a URL, that is there for every worker."
        )
    recipe, threads = folder.recipe, config.threads or default_workers()
    sources = replace(config.sources, calibration=folder.calibration(), calibrated_on=recipe.calibrated_on)
    device = choose_device(config.device)
    twostream = run_on(rebuild_twostream(recipe, sources, device), config.runtime, threads)
    networks = FoldNetworks(twostream)
    caches = caches_of(config.cache, recipe) if config.cache else []
    with flow_workers(recipe.algorithm, threads, config.flow_backend, device) as flow:
        yield VideoExtractor(folder, networks, flow, caches, config.allow_damaged)
