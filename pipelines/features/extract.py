"""Extraction as one job: options in, events out; the same for the command, Python, a Ray cluster and the tests."""

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
from lstr.extractors.runtime_choice import run_on
from lstr.files.atomic import check_writable
from lstr.files.names import fault_of
from lstr.files.remote import Place
from lstr.labels.video_ids import HINT
from lstr.pipelines.features.chunk_cache import caches_of
from lstr.pipelines.features.extract_options import ExtractOptions
from lstr.pipelines.features.extraction_plan import Plan, Share, make_plan, share, this_machine
from lstr.pipelines.features.fold_networks import FoldNetworks
from lstr.pipelines.features.prepare import as_begun, prepare
from lstr.pipelines.features.processes import over_processes
from lstr.pipelines.features.ray_cluster import Portion, cluster, nodes, over_cluster, portion_of, share_cluster
from lstr.pipelines.features.resume import Engine, Outcome, Summary, resume
from lstr.pipelines.features.video import VideoExtractor
from lstr.pipelines.model_files.known_networks import record_weights
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

    options: ExtractOptions
    """With the device and the flow backend of what is made here: of a cluster's job only recipe and calibration."""
    device: str
    """The torch device of the networks that extract."""
    sharing: Callable[[int], Share]
    portion: Portion | None = None
    """What of a node one video takes, on a cluster."""

    @property
    def flow(self) -> tuple[str, str]:
        """The backend that is wanted here, and the device of the networks here."""
        return self.options.flow_backend, self.options.device or "cpu"


def plan(videos: Mapping[str, Place], options: ExtractOptions) -> Plan:
    """What `extract` would do with videos {id: source}; makes nothing. Raises as `extract` does before its work."""
    with _site(options) as site:
        as_begun(videos, site.options)
        return _plan(videos, site)


def extract(videos: Mapping[str, Place], options: ExtractOptions) -> Generator[Event, None, None]:
    """Extract each of the videos {id: source} that is not done; running it again goes on after an interruption.

    Yields the Plan, Progress("calibration", …) of random networks, NetworksReady, then Progress by video id, an
    Outcome of each that is done or kept and Failed of each that is neither, and last Finished with the Summary.
    Close the generator to end everything it started; what is finished is kept. Raises DeviceError, FlowError,
    MissingPathError, NetworkRuntimeError, OutputError, RecipeError or WeightsError for what concerns all videos.
    """
    with _site(options) as site:
        begun = as_begun(videos, site.options)
        planned = _plan(videos, site)
        yield planned
        with flow_workers(options.recipe.algorithm, options.threads, *site.flow) as flow:
            yield from map(Notice, flow.warnings if flow else ())
            twostream, folder = begun or (yield from prepare(videos, site.options, flow))
            del begun
            record_weights(folder, twostream.sources.files)
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
                    if not isinstance(event, Outcome):
                        yield event
                        continue
                    summary.add(event)
                    yield Failed(event.id, event.reason, event.hint) if event.state == "failed" else event
            yield Finished(summary)


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


def _plan(videos: Mapping[str, Place], site: _Site) -> Plan:
    """The plan. Raises OutputError for an id that names no file in the output, and where something is to be done and
    the output cannot be written."""
    for video_id in videos:
        if fault := fault_of(video_id):
            raise OutputError(f"The video id {brief(video_id)} is {fault}.", HINT)
    recipe = site.options.recipe
    if recipe.algorithm:
        choose_backend(recipe.algorithm, *site.flow)  # raises FlowError for one that is missing
    planned = make_plan(videos, site.options.output, recipe, site.device, site.sharing)
    if isinstance(planned.output, Path) and len(planned.of("done")) < len(planned.videos):
        check_writable(planned.output)
    return planned
