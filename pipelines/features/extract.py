"""The extraction job: options in, events out; the same for the command, Python, a Ray cluster and the tests."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lstr.errors import OutputError, brief
from lstr.extractors.devices import choose_device, release_memory, videos_at_once
from lstr.extractors.flow.workers import choose_backend, flow_workers
from lstr.extractors.networks.runtime import choose_runtime
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import run_on
from lstr.files.atomic import check_writable
from lstr.files.names import fault_of
from lstr.files.remote import Place
from lstr.labels.video_ids import HINT
from lstr.pipelines.features.chunk_cache import caches_of
from lstr.pipelines.features.extraction import (
    Engine,
    ExtractOptions,
    Outcome,
    Plan,
    Share,
    Summary,
    make_plan,
    resume,
    share,
    this_machine,
)
from lstr.pipelines.features.processes import over_processes
from lstr.pipelines.features.ray_cluster import Portion, cluster, nodes, over_cluster, portion_of, share_cluster
from lstr.pipelines.features.video import FoldNetworks, VideoExtractor, new_networks, resume_networks
from lstr.pipelines.model_files.networks import record_weights
from lstr.pipelines.progress import Failed, Finished, Notice, Progress


@dataclass(frozen=True)
class NetworksReady:
    """The networks are made and the feature folder is begun; the videos come next."""

    output: Place
    recipe: Recipe


Event = Plan | Progress | NetworksReady | Notice | Outcome | Failed | Finished[Summary]


@dataclass(frozen=True)
class _Site:
    """Where an extraction runs."""

    # With the device and flow backend of this process, which on a cluster makes only the recipe and calibration
    options: ExtractOptions
    # The torch device of the networks that extract
    device: str
    sharing: Callable[[int], Share]
    # What one video takes of a node, on a cluster
    portion: Portion | None = None

    def plan(self, videos: Mapping[str, Place]) -> Plan:
        """Return the plan.

        Raises OutputError for an id that is not a valid file name, and if the output cannot be written; FlowError for
        a flow backend that is missing.
        """
        for video_id in videos:
            if fault := fault_of(video_id):
                raise OutputError(f"The video id {brief(video_id)} is {fault}.", HINT)
        options = self.options
        if options.recipe.algorithm:
            choose_backend(options.recipe.algorithm, options.flow_backend, options.device or "cpu")
        planned = make_plan(videos, options.output, options.recipe, self.device, self.sharing)
        if isinstance(planned.output, Path) and len(planned.of("done")) < len(planned.videos):
            check_writable(planned.output)
        return planned


@contextmanager
def _site(options: ExtractOptions) -> Iterator[_Site]:
    if options.engine == "ray":
        with cluster(options.ray_address):
            portion = portion_of(nodes().values(), options.device, options.threads)
            here = replace(options, device="cpu", flow_backend="auto")
            yield _Site(here, portion.device, partial(share_cluster, portion, most=options.workers), portion)
        return
    device = choose_device(options.device)
    choose_runtime(options.runtime, device)
    sharing = partial(share, this_machine(device), processes=options.workers, threads=options.threads)
    yield _Site(replace(options, device=device), device, sharing)


def plan(videos: Mapping[str, Place], options: ExtractOptions) -> Plan:
    """Return what `extract` would do with videos {id: source}; makes nothing. Raises as `extract` before its work."""
    with _site(options) as site:
        resume_networks(videos, site.options)
        return site.plan(videos)


def extract(videos: Mapping[str, Place], options: ExtractOptions) -> Generator[Event, None, None]:
    """Extract each of the videos {id: source} that is not done; a second run resumes.

    Yields the Plan, Progress("calibration", …) of random networks, NetworksReady, then Progress by video id, an
    Outcome of each that is done or kept and Failed of each that is neither, and last Finished with the Summary.
    Close the generator to end everything it started; what is finished is kept. Raises DeviceError, FlowError,
    MissingPathError, NetworkRuntimeError, OutputError, RecipeError or WeightsError for what concerns all videos.
    """
    with _site(options) as site:
        resumed = resume_networks(videos, site.options)
        planned = site.plan(videos)
        yield planned
        here = site.options
        with flow_workers(options.recipe.algorithm, options.threads, here.flow_backend, here.device or "cpu") as flow:
            yield from map(Notice, flow.warnings if flow else ())
            twostream, folder = resumed or (yield from new_networks(videos, here, flow))
            del resumed
            record_weights(folder.path, twostream.sources.files)
            if options.engine == "local" and len(planned.of("done")) < len(videos):
                twostream = run_on(twostream, options.runtime, planned.share.threads)
                twostream.open()  # processes that follow find the networks converted, and warnings come once
                yield from map(Notice, twostream.warnings)
            yield NetworksReady(folder.path, twostream.recipe)
            if random := twostream.recipe.random_streams:
                state = "" if twostream.recipe.calibrated_on else " and are not calibrated (see --calibrate)"
                text = f"{random} networks carry random weights{state}; bring published ones with --weights kinetics."
                yield Notice(text)
            config = options.for_workers(site.device, planned.share.threads)
            to_do: Mapping[str, Place] = planned.longest_first()
            if site.portion:
                engine: Engine = partial(over_cluster, config=config, portion=site.portion, most=options.workers)
            elif planned.share.processes > 1:
                gpus = this_machine(site.device).gpus
                engine = partial(over_processes, config=config, processes=planned.share.processes, gpus=gpus)
            else:
                caches = caches_of(options.cache, twostream.recipe) if options.cache else []
                damaged, at_once = options.allow_damaged, videos_at_once(site.device)
                networks = FoldNetworks(twostream, options.without)
                extractor = VideoExtractor(folder, networks, flow, caches, damaged, at_once)
                engine, to_do = extractor.engine, videos
            del twostream  # each process has its own
            release_memory()
            summary = Summary()
            with closing(resume(to_do, folder, engine)) as events:
                for event in events:
                    if isinstance(event, Outcome):
                        summary.add(event)
                        if event.state == "failed":
                            yield Failed(event.id, event.reason, event.hint)
                            continue
                    yield event
            yield Finished(summary)
