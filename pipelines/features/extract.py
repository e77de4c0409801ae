"""The extraction job, for the command line, Python and Ray clusters: options in, events out."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

import torch

from lstr.extractors.devices import GPU_READERS, choose_device
from lstr.extractors.flow.workers import default_workers, flow_workers
from lstr.extractors.networks.runtime import choose_runtime
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import run_on
from lstr.files.remote import Place
from lstr.pipelines.features.chunk_cache import caches_of, chunk_recipe
from lstr.pipelines.features.engines import (
    Portion,
    cluster,
    nodes,
    over_cluster,
    over_processes,
    portion_of,
    share_cluster,
)
from lstr.pipelines.features.extraction import (
    Engine,
    ExtractOptions,
    Outcome,
    Plan,
    Share,
    Summary,
    count_gpus,
    free_memory,
    make_plan,
    resume,
    share,
)
from lstr.pipelines.features.output_folder import OutputFolder
from lstr.pipelines.features.video import FoldNetworks, VideoExtractor, new_networks, resume_networks
from lstr.pipelines.model_files.networks import record_weights
from lstr.pipelines.progress import Failed, Finished, Notice, Progress

Event = Plan | Progress | OutputFolder | Notice | Outcome | Failed | Finished[Summary]


@contextmanager
def _open_machine(
    options: ExtractOptions,
) -> Iterator[tuple[ExtractOptions, str, Callable[[int], Share], Portion | None]]:
    """Yield the options for this process, the networks' device, a function that shares it, and a cluster's portion."""
    if options.engine == "ray":
        with cluster():
            portion = portion_of(nodes().values(), options.device, options.threads)
            # this process computes only the recipe and the calibration
            device = "cuda" if portion[1] else "cpu"
            yield replace(options, device="cpu"), device, partial(share_cluster, portion, most=options.workers), portion
        return
    device = choose_device(options.device)
    choose_runtime(options.runtime, device)
    machine = {"cores": default_workers(), "gpus": count_gpus(device), "memory": free_memory()}
    sharing = partial(share, **machine, processes=options.workers, threads=options.threads)
    yield replace(options, device=device), device, sharing, None


def plan(videos: Mapping[str, Place], options: ExtractOptions) -> Plan:
    """Return the plan of `extract` for videos {id: source}; writes nothing. Raises as `extract` before its work."""
    with _open_machine(options) as (here, device, sharing, _):
        resume_networks(videos, here)
        return make_plan(videos, here, device, sharing)


def extract(videos: Mapping[str, Place], options: ExtractOptions) -> Generator[Event, None, None]:
    """Extract each of the videos {id: source} that is not done; a second run resumes.

    Close the generator to end all processes and threads; finished videos are kept.

    Yields:
        The Plan; Progress("calibration", …) for random networks; the OutputFolder when it is ready; Progress by video
        id; an Outcome for each video that is done or kept, and Failed for each other video; and Finished with the
        Summary.

    Raises:
        DeviceError, FlowError, MissingPathError, NetworkRuntimeError, OutputError, RecipeError, WeightsError: An error
            that affects all videos.
    """
    with _open_machine(options) as (here, device, sharing, portion):
        resumed = resume_networks(videos, here)
        planned = make_plan(videos, here, device, sharing)
        processes, threads = planned.share
        yield planned
        with flow_workers(options.recipe.algorithm, options.threads, device=here.device or "cpu") as flow:
            yield from map(Notice, flow.warnings if flow else ())
            twostream, folder = resumed or (yield from new_networks(videos, here, flow))
            del resumed
            record_weights(folder.path, twostream.sources.files)
            if options.engine == "local" and len(planned.of("done")) < len(videos):
                twostream = run_on(twostream, options.runtime, threads)
                twostream.prepare()  # converts the networks for the processes, and collects warnings only once
                yield from map(Notice, twostream.warnings)
            yield folder
            if random := twostream.recipe.random_streams:
                state = "" if twostream.recipe.calibrated_on else " and are not calibrated (see --calibrate)"
                text = f"The {random} networks have random weights{state}; use published ones: --weights kinetics."
                yield Notice(text)
            # Processes read recipe and calibration from the feature folder.
            config = replace(options, device=device, threads=threads, recipe=PRESETS["faithful"], calibrate=None)
            # Long videos first, so that all processes end at about the same time.
            to_do = {video.id: video.source for video in sorted(planned.videos, key=lambda video: -video.chunks)}
            if portion:
                engine: Engine = partial(over_cluster, config=config, portion=portion, most=options.workers)
            elif processes > 1:
                engine = partial(over_processes, config=config, processes=processes, gpus=count_gpus(device))
            else:
                caches = caches_of(options.cache, chunk_recipe(twostream.recipe)) if options.cache else []
                networks = FoldNetworks(twostream, options.without)
                at_once = GPU_READERS if device != "cpu" else 1
                extractor = VideoExtractor(folder, networks, flow, caches, options.allow_damaged, at_once)
                engine, to_do = extractor.engine, dict(videos)
            del twostream  # each process builds its networks
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # so that other processes can use the memory that torch keeps
            summary = Summary()
            with closing(resume(to_do, folder, engine)) as events:
                for event in events:
                    if isinstance(event, Outcome):
                        summary.counts[event.state] += 1
                        if event.state == "done":
                            summary.chunks += event.chunks
                            for name, seconds in event.stages.items():
                                summary.stages[name] = summary.stages.get(name, 0.0) + seconds
                        if event.state == "failed":
                            summary.failed.append(event)
                            yield Failed(event.id, event.reason, event.hint)
                            continue
                    yield event
            yield Finished(summary)
