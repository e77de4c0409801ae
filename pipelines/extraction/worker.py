"""What a process needs to extract videos into a feature folder, made once from what can be sent to it."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from extractors.errors import MissingPathError
from extractors.flow.workers import flow_workers
from extractors.networks.build import WeightSources
from extractors.twostream import rebuild_twostream
from pipelines.extraction.chunk_cache import caches_of
from pipelines.extraction.outcome import Outcome
from pipelines.extraction.video import attempt
from pipelines.features.remote_folder import Features, open_folder
from pipelines.files.remote import Place
from pipelines.networks.fold_networks import FoldNetworks
from pipelines.progress import Tell


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is told; it can be pickled. The recipe and the calibration are the folder's own."""

    features: Place
    """Feature folder that `prepare` has begun."""
    sources: WeightSources = WeightSources()
    """Files of the networks that are not random."""
    device: str = "cpu"
    threads: int = 1
    """Of optical flow, and on a CPU as many of the networks, that share as many cores."""
    flow_backend: str = "auto"
    allow_damaged: bool = False
    cache: Path | None = None
    """A folder of `pipelines.extraction.chunk_cache`."""


class Worker:
    """The networks of a feature folder and the threads of its flow; use it as a context manager.

    Raises MissingPathError where the folder is not, RecipeError or WeightsError when its networks cannot be made here,
    FlowError without the flow backend.
    """

    def __init__(self, config: WorkerConfig):
        self.config = config
        folder = open_folder(config.features)
        if folder is None:
            raise MissingPathError(
                f"{config.features} is not there.", "give -o a folder, or a URL, that is there for every worker."
            )
        self.folder: Features = folder
        recipe = self.folder.recipe
        sources = replace(config.sources, calibration=self.folder.calibration(), calibrated_on=recipe.calibrated_on)
        twostream = rebuild_twostream(recipe, sources, config.device)
        twostream.threads = config.threads
        self.networks = FoldNetworks(twostream)
        self.caches = caches_of(config.cache, recipe) if config.cache else []
        self._open = ExitStack()
        self.flow = self._open.enter_context(flow_workers(recipe.algorithm, config.threads, config.flow_backend))

    def extract(self, video_id: str, source: Place, progress: Tell) -> Outcome:
        """Extract one video that is not done; as `pipelines.extraction.video.attempt`."""
        damaged = self.config.allow_damaged
        return attempt(video_id, source, self.folder, self.networks, self.flow, progress, damaged, self.caches)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception) -> None:
        self._open.close()
