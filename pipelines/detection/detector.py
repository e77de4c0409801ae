"""Detection from Python: one call, or a model that is loaded once and detects many times."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any, cast

from numpy.typing import NDArray

from lstr.errors import ConfigError, LstrError
from lstr.extractors.devices import choose_device
from lstr.extractors.video.inputs import LiveOptions
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectEvent, DetectOptions, detect_sources
from lstr.pipelines.detection.model import Networks, load_checkpoint
from lstr.pipelines.detection.options import ALL, Limits, NetworkOptions, ThresholdChoice
from lstr.pipelines.detection.source import FrameSource, Source, vector_rows
from lstr.pipelines.model_files.networks import streams_of_checkpoint
from lstr.pipelines.progress import warn
from lstr.timeline import Event

Frames = Iterable[tuple[NDArray, float]]


def detect(
    source: str | Path,
    checkpoint: str | Path | Checkpoint | None = None,
    *,
    networks: NetworkOptions | Mapping[str, Any] | str | Path | None = None,
    thresholds: ThresholdChoice = None,
    device: str | None = None,
    limits: Limits = ALL,
    live: LiveOptions | None = None,
) -> Iterator[Decision]:
    """Yield the decisions on a video, camera or URL, one per quarter second, each without looking ahead.

    If an action is active when the source ends, there is an event `ended` with `still_active`. For a file it comes with
    the last decision. The last decision of a live source is not known in advance, so it is repeated with the event.

    Args:
        source: As for `lstr detect`.
        checkpoint: A model file (.lstr), which needs nothing else, a checkpoint, or a loaded one; without it
            $LSTR_CHECKPOINT, else the default model.
        networks: Other weights than those in the file or next to the run: a folder of `lstr finetune`, or {"rgb": FILE,
            "flow": FILE} with other fields of NetworkOptions by name.
        thresholds: A Thresholds, values by name as {"on": 0.4}, or either by class.
        device: "cpu" or "cuda"; without it a GPU if there is one.
        limits: The part of the source.
        live: How to read a live source.

    Warns if the networks have random weights, or a published checkpoint leaves a setting open. Raises the typed errors
    of `lstr.errors`. `detect_sources` in this module takes several sources, writes files,
    and reports more than decisions.
    """
    loaded = checkpoint if isinstance(checkpoint, Checkpoint) else load_checkpoint(checkpoint, device=device)
    chosen = NetworkOptions.of(networks, streams_of_checkpoint(loaded) or loaded.config.streams)
    networks = replace(chosen, device=chosen.device or device)
    options = DetectOptions(
        loaded, networks=networks, thresholds=thresholds, limits=limits, live=live or LiveOptions(), keep_going=False
    )
    with Decisions(detect_sources([source], options)) as decisions:
        yield from decisions


class Decisions(Iterator[Decision], AbstractContextManager["Decisions"]):
    """An iterator of the decisions on one source, each made on request; close it to stop before the end.

    An action that is active at the end is an event of the last decision, as described for `lstr.detect`. For frames or
    features from a program, which are decided immediately, it is only in `ended`. `ended` and `timeline`, the
    lstr-timeline/1 document (None without a decision), are set after the last decision. Several videos are processed in
    sequence, with the id as `Decision.source`; `timelines` has all by id, and `ended` and `timeline` raise LstrError.
    """

    def __init__(self, events: Generator[DetectEvent, None, None], at_once: bool = False):
        self._events, self._at_once = events, at_once
        self._decisions = self._decide()
        self._ended: list[Event] = []
        self.timelines: dict[str, dict[str, Any]] = {}

    @property
    def ended(self) -> list[Event]:
        """The ends of the actions that were active at the end of the source; LstrError after several videos."""
        self._check_single()
        return self._ended

    @property
    def timeline(self) -> dict[str, Any] | None:
        """The lstr-timeline/1 document of the source, None before its end; LstrError after several videos."""
        self._check_single()
        return next(iter(self.timelines.values()), None)

    def _check_single(self) -> None:
        if len(self.timelines) > 1:
            raise LstrError(f"There are {len(self.timelines)} videos.", "read `timelines`, which has them by id.")

    def _decide(self) -> Generator[Decision, None, None]:
        """Yield the decisions, and warn of notices.

        Each decision of a file is yielded after the next one is made, because the last one has the events of the end.
        Decisions of a live source, or with `at_once`, are yielded immediately.
        """
        latest: Decision | None = None
        waits = not self._at_once
        try:
            for event in self._events:
                warn(event)
                if isinstance(event, Opened):
                    waits = waits and not event.live
                elif isinstance(event, Decision):
                    before, latest = latest, event
                    if not waits:
                        yield latest
                    elif before:
                        yield before
                elif isinstance(event, Ended):
                    if event.timeline:
                        self.timelines[event.id] = event.timeline
                    self._ended = [*event.events]
                    last, latest = latest, None
                    if last and waits:
                        yield replace(last, events=[*last.events, *event.events])
                    elif last and event.events and not self._at_once:
                        yield replace(last, events=[*event.events], gaps=[])
        except Exception:
            if latest and waits:
                yield latest
            raise

    def __next__(self) -> Decision:
        return next(self._decisions)

    def events(self) -> Iterator[Event]:
        """Yield starts and ends of actions as soon as they are decided, and at the end the ends of active actions."""
        for decision in self:
            yield from decision.events
        if self._at_once:
            yield from self._ended

    def close(self) -> None:
        """Stop the detection."""
        self._decisions.close()
        self._events.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False, repr=False)
class Detector(Checkpoint, AbstractContextManager["Detector"]):
    """A loaded checkpoint for repeated detection: use it as a context manager, or `close` it.

    The first call of `detect` that needs the networks builds them, and they are kept until `close`; until then torch
    uses one thread for calls from this thread. `detect` is thread-safe, and several of its results may be iterated
    alternately: they share only the networks.
    """

    networks: NetworkOptions = field(default_factory=NetworkOptions, kw_only=True)
    """How to build the networks."""
    device: str | None = field(default=None, kw_only=True)
    """Where it detects; None for a GPU if there is one."""
    _kept: list[Networks] = field(default_factory=list, kw_only=True)
    _lock: Lock = field(default_factory=Lock, kw_only=True)

    def __repr__(self) -> str:
        return f"<Detector {self.path}: {', '.join(self.classes)}>"

    def detect(
        self,
        source: str | Path | Sequence[str | Path] | Frames,
        *,
        thresholds: ThresholdChoice = None,
        limits: Limits = ALL,
        live: LiveOptions | None = None,
    ) -> Decisions:
        """Return the decisions on a source, one per quarter second, each made without looking ahead.

        Args:
            source: A path or address as for `lstr detect`, a list of them, or an iterable of (frame, time): frames (H,
                W, 3) uint8 RGB, and seconds that do not decrease. Frames are read ahead in another thread, up to a
                limit; times count from the first frame. Nothing is decided where no frame comes for more than two
                seconds.
            thresholds: As for `lstr.detect`, like `limits` and `live`.

        Warns and raises as `lstr.detect`, when the decisions are taken.
        """
        is_path = isinstance(source, str | Path)
        are_paths = isinstance(source, Sequence) and bool(source) and isinstance(source[0], str | Path)
        sources: Any = [source] if is_path else source if are_paths else [FrameSource("frames", cast(Frames, source))]
        options = DetectOptions(self, thresholds=thresholds, limits=limits, live=live or LiveOptions())
        return self._decisions(sources, options, at_once=not (is_path or are_paths))

    def detect_features(self, vectors: Iterable[Any], *, thresholds: ThresholdChoice = None) -> Decisions:
        """Return the decisions on features of a program, each made before the next vector is asked for.

        Args:
            vectors: One per chunk from the beginning: (D,), appearance before motion, or by stream {"rgb": …, "flow":
                …}. Times follow the rate of the features that the model was trained on.
            thresholds: As for `lstr.detect`.

        Raises, when the decisions are taken, VideoError for an unsuitable vector, and as `lstr.detect`.
        """
        source = Source("features", rows=vector_rows(vectors, self))
        return self._decisions([source], DetectOptions(self, thresholds=thresholds), at_once=True)

    def close(self) -> None:
        """Free the memory and threads of the networks; a later `detect` builds them again."""
        with self._lock:
            while self._kept:
                self._kept.pop().close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _decisions(self, sources: Iterable[str | Path | Source], options: DetectOptions, at_once: bool) -> Decisions:
        def events() -> Generator[DetectEvent, None, None]:
            with self._lock:
                if not self._kept:
                    if not self.exported:
                        self.model.to(choose_device(self.device))
                    wanted = replace(self.networks, device=self.networks.device or self.device)
                    self._kept.append(Networks(self, wanted))
                (networks,) = self._kept
            chosen = replace(options, networks=networks, keep_going=False)
            with closing(detect_sources(sources, chosen)) as found:
                yield from found

        return Decisions(events(), at_once)


def load(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    networks: NetworkOptions | Mapping[str, Any] | str | Path | None = None,
    device: str | None = None,
) -> Detector:
    """Read a checkpoint, ours or of published code, or a model file, to detect with many times.

    Args:
        path: The file.
        overrides: Settings that a published checkpoint does not state, by name: n_heads, long_length, long_stride.
        networks: As for `lstr.detect`.
        device: As for `lstr.detect`; the model stays on the CPU until it detects.

    Raises CheckpointError if the file is missing, damaged, unsafe, or contradicts its configuration, ConfigError for an
    invalid override, and DeviceError.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"{path!r} is not the path of a model.", "name a model file or checkpoint.")
    choose_device(device)
    loaded = load_checkpoint(Path(path), overrides, "cpu")
    chosen = NetworkOptions.of(networks, streams_of_checkpoint(loaded) or loaded.config.streams)
    known = {one.name: getattr(loaded, one.name) for one in fields(loaded)}
    return Detector(**known, networks=chosen, device=device)
