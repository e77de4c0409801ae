"""A model that is loaded once and detects many times: its networks and threads are kept between the calls."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import ConfigError
from lstr.extractors.devices import choose_device
from lstr.extractors.video.live_reader import LiveOptions
from lstr.pipelines.detection.checkpoint import read_checkpoint
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.detect import decisions_of
from lstr.pipelines.detection.events import Ended
from lstr.pipelines.detection.frame_source import FrameSource
from lstr.pipelines.detection.job import DetectEvent, DetectOptions, detect_sources
from lstr.pipelines.detection.networks import NetworkOptions, Networks
from lstr.pipelines.detection.sources import ALL, Limits
from lstr.pipelines.detection.streams import SharedStreams
from lstr.pipelines.detection.vector_source import VectorSource
from lstr.pipelines.networks.checkpoint_recipe import streams_taken
from lstr.pipelines.progress import warn
from lstr.pipelines.thresholds.choice import ThresholdChoice
from lstr.timeline import Event

Frames = Iterable[tuple[NDArray, float]]


class Decisions(Iterator[Decision]):
    """The decisions on one source, each made when it is asked for; close it to end before the source does.

    What is still on at the end is an event of the last decision, as `lstr.detect` says; not of frames that a program
    gives, each decided before the next one is there. `ended`, which has these events alone, and `timeline` are there
    when all decisions have been taken: the lstr-timeline/1 document, None where there was no decision. Of a folder the
    decisions on its videos come one video after another, `Decision.source` says which, and both are of the last one;
    `timelines` has all by id.
    """

    def __init__(self, events: Generator[DetectEvent, None, None], at_once: bool):
        self._events, self._at_once = events, at_once
        self._decisions = decisions_of(self._noted(), at_once)
        self.ended: list[Event] = []
        self.timeline: dict[str, Any] | None = None
        self.timelines: dict[str, dict[str, Any]] = {}

    def _noted(self) -> Iterator[DetectEvent]:
        for event in self._events:
            warn(event)
            if isinstance(event, Ended):
                self.timeline = self.timelines[event.id] = event.timeline
                self.ended = list(event.events)
                if self._at_once:  # its last decision is out
                    continue
            yield event

    def __next__(self) -> Decision:
        return next(self._decisions)

    def events(self) -> Iterator[Event]:
        """What begins and ends, as soon as it is decided; what is on when the source ends, too."""
        for decision in self:
            yield from decision.events
        if self._at_once:
            yield from self.ended

    def close(self) -> None:
        """End what makes the decisions."""
        self._decisions.close()
        self._events.close()

    def __enter__(self) -> "Decisions":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False, repr=False)
class Detector(Checkpoint):
    """A checkpoint, or that of a model file, that detects: use it as a context manager, or `close` it.

    The networks are made with the first call of `detect` that needs them, and kept until `close`; until then torch
    computes on one thread in the thread of that call. `detect` may be called from several threads at once, and several
    of its results may be taken in turns: they share the networks, and nothing else.
    """

    networks: NetworkOptions = field(default_factory=NetworkOptions, kw_only=True)
    """How the networks are made."""
    device: str | None = field(default=None, kw_only=True)
    """Where it detects; None is a GPU when there is one."""
    _kept: list[tuple[Networks, SharedStreams]] = field(default_factory=list, kw_only=True)
    _lock: Lock = field(default_factory=Lock, kw_only=True)

    def __repr__(self) -> str:
        return f"<Detector {self.path}: {', '.join(self.classes)}>"

    def detect(
        self,
        source: str | Path | Frames,
        *,
        thresholds: ThresholdChoice = None,
        limits: Limits = ALL,
        live: LiveOptions | None = None,
    ) -> Decisions:
        """Decisions on a source, one per quarter second of it, each made without looking ahead.

        source: a path or address as for `lstr detect`, or an iterable of (frame, time): frames (H, W, 3) uint8 RGB, and
        seconds that do not fall. Frames are taken in another thread, a bounded number ahead, and times count from the
        first of them; where more than two seconds have none, nothing is decided. thresholds, limits, live: as for
        `lstr.detect`.

        Warns and raises as `lstr.detect`, when the decisions are taken.
        """
        given = source if isinstance(source, str | Path) else FrameSource("frames", "frames", source)
        events = self._events(given, thresholds, limits, live or LiveOptions())
        return Decisions(events, at_once=isinstance(given, FrameSource))

    def detect_features(self, vectors: Iterable[Any], *, thresholds: ThresholdChoice = None) -> Decisions:
        """Decisions on features that a program has, one for each, made before the next one is asked for.

        vectors: those of one chunk after the other, from the beginning: (D,), appearance first and then motion, or by
        stream as {"rgb": …, "flow": …}. Times follow the rate of the features that the model has learnt from. Raises,
        when the decisions are taken, VideoError for what is no such vector, and as `lstr.detect`.
        """
        source = VectorSource("features", "features", vectors)
        return Decisions(self._events(source, thresholds, ALL, LiveOptions()), at_once=True)

    def close(self) -> None:
        """Free what the networks take; a later `detect` makes them again."""
        with self._lock:
            while self._kept:
                self._kept.pop()[0].close()

    def __enter__(self) -> "Detector":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _events(
        self,
        source: str | Path | FrameSource | VectorSource,
        thresholds: ThresholdChoice,
        limits: Limits,
        live: LiveOptions,
    ) -> Generator[DetectEvent, None, None]:
        with self._lock:
            if not self._kept:
                if not self.exported:
                    self.model.to(choose_device(self.device))
                wanted = replace(self.networks, device=self.networks.device or self.device)
                self._kept.append((Networks(self, wanted), SharedStreams(self)))
            ((networks, streams),) = self._kept
        options = DetectOptions(
            self,
            device=self.device,
            networks=networks,
            streams=streams,
            thresholds=thresholds,
            limits=limits,
            live=live,
            keep_going=False,
        )
        with closing(detect_sources([source], options)) as events:
            yield from events


def load(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    networks: NetworkOptions | Mapping[str, Any] | str | Path | None = None,
    device: str | None = None,
) -> Detector:
    """Read a checkpoint of ours or of the published code, or a model file, to detect with many times.

    `overrides` (setting to value) are what a published checkpoint does not say: n_heads, long_length, long_stride.
    networks, device: as for `lstr.detect`; the model is on the CPU until it detects. Raises CheckpointError when the
    file is missing, damaged, unsafe, or contradicts its configuration, ConfigError on a bad override, and DeviceError.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"{path!r} is no path of a model.", "name a model file or checkpoint.")
    choose_device(device)
    loaded = read_checkpoint(path, overrides)
    chosen = NetworkOptions.of(networks, streams_taken(loaded) or loaded.config.streams)
    known = {one.name: getattr(loaded, one.name) for one in fields(loaded)}
    return Detector(**known, networks=chosen, device=device)
