"""Live sources of `lstr detect`: all at once, shown while they run."""

from collections.abc import Mapping, Sequence

from extractors.errors import ExtractorError
from extractors.video.live_input import Input
from extractors.video.live_reader import LiveOptions
from lstr.checkpoint import Checkpoint
from lstr_cli import console
from lstr_cli.view import View
from pipelines.detection.detect import truth_of
from pipelines.detection.live import LiveChain, open_live, run_live
from pipelines.detection.sources import NetworkOptions, open_networks


def watch(
    inputs: Sequence[Input],
    loaded: Checkpoint,
    networks: NetworkOptions,
    options: Sequence,
    outputs: Sequence,
    view: View,
    screen: console.Screen,
) -> tuple[list[tuple[str, dict]], list[ExtractorError]]:
    """Detect on live sources until they end: timelines with their ids, and what ended the others.

    `options` are limits, how to read, precision and thresholds; `outputs` the arguments of `run_live`, the labels in
    the place of `truth`. A single source that fails raises its error, with its files written.
    """
    limits, live, precision, thresholds = options
    folder, formats, lines, labels, warnings, embed = outputs
    reading = LiveOptions(live["clock"], live["on_lag"], live["timeout"])
    with (
        open_networks(loaded, networks) as (twostream, workers, more),
        open_live(inputs, loaded, twostream.recipe.long_side, reading, limits, thresholds) as sources,
        LiveChain(sources, loaded, twostream, workers, precision, live["on_gap"], limits.max_chunks) as chain,
    ):
        for text in more:
            console.warn(text)
        truth = {source.id: found for source in sources if (found := truth_of(labels, source.id))}
        running = run_live(chain, folder, formats, lines, truth, [*warnings, *more], embed)
        watched = {source.id: view.add(source.look(), loaded.classes, source.look) for source in sources}
        finished = _follow(running, watched, screen)
    return list(finished.items()), [source.error for source in sources if source.error]


def _follow(running, watched: Mapping, screen: console.Screen) -> dict:
    """Show each decision; the timelines."""
    while True:
        try:
            source, decision = next(running)
            if decision:
                watched[source.id].push(decision)
                screen.update(watched[source.id])
            elif error := source.error:
                if len(watched) == 1 or not isinstance(error, ExtractorError):
                    raise error
                console.say(f"failed: {error}\nhint: {error.hint}")
        except StopIteration as ended:
            return ended.value
        except KeyboardInterrupt as interrupted:
            # wherever it fell, the files are written before it goes on
            running.throw(interrupted)
