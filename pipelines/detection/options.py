"""Options of a detection: which sources, which part of them, by which networks, and which files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from os.path import isdir
from pathlib import Path
from typing import Any, TextIO

from lstr.chunk import CLOCK, Clock
from lstr.errors import ConfigError, MissingPathError, VideoError
from lstr.extractors.flow.workers import Algorithm, Backend
from lstr.extractors.streams import STREAMS
from lstr.extractors.video.inputs import Input, find_videos, parse_live
from lstr.files.names import fault_of
from lstr.labels.label_set import Labels
from lstr.loaded_checkpoint import Checkpoint
from lstr.settings import Amount, Positive, PositiveAmount, check_fields
from lstr.timeline import Thresholds, changed, thresholds_of

DEFAULT_FORMATS = ("json", "jsonl", "npy", "html")
# Formats of a detection, which `lstr.pipelines.annotations.format` imports when they are written.
FORMATS = ("json", "jsonl", "csv", "vtt", "eaf", "activitynet", "thumos", "npy", "png", "svg", "html", "mp4")

NAMES = ("on", "off", "min_length", "merge_gap", "highest", "backdate")
BY_NAME = f"use a Thresholds, or values of {', '.join(NAMES)} by name."

# One Thresholds for all classes; values by name (those of NAMES; None leaves one as it is) for all
# classes; a Thresholds or such values by class; or None for the checkpoint's own.
ThresholdChoice = Thresholds | Mapping[str, Any] | None


@dataclass(frozen=True)
class Limits:
    """Which chunks are decided: from `start` on, for `duration` (seconds of the source), `max_chunks` at most."""

    start: Amount = 0.0
    duration: PositiveAmount | None = None
    max_chunks: Positive | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for values out of range."""
        check_fields(self)

    def span(self, clock: Clock = CLOCK) -> tuple[int, int | None]:
        """Return the chunk that contains `start`, and the one before which `duration` is over, None without one."""
        first = max(0, clock.first(self.start))
        return first, None if self.duration is None else max(first + 1, clock.end(self.start + self.duration))

    def of(self, n_chunks: int, name: str, clock: Clock = CLOCK) -> range:
        """Return the chosen chunks of a source with `n_chunks`. Raises VideoError if no chunk is chosen."""
        first, end = self.span(clock)
        chosen = range(first, n_chunks if end is None else min(end, n_chunks))[: self.max_chunks]
        if not n_chunks:
            raise VideoError(f"{name} has no chunk.", "use a longer video, or features with at least one row.")
        if not chosen:
            raise VideoError(
                f"{name} ends after {clock.at(n_chunks):g} s, before the start at {self.start:g} s.",
                "start earlier; `lstr info` shows how long a video is.",
            )
        return chosen


ALL = Limits()


@dataclass(frozen=True)
class NetworkOptions:
    """How the networks for raw video are built; `algorithm` and `allow_mismatch` as for `networks_of`."""

    weights: Mapping[str, str | None] = field(default_factory=dict)
    """Files or folders by stream; other streams use the weights of the model file or training run."""
    flow_threads: Positive | None = None
    """Threads for optical flow; None for one per core."""
    flow_backend: Backend = "auto"
    device: str | None = None
    """Device of the networks, and of a model that a job loads; None for a GPU if there is one."""
    algorithm: Algorithm | None = None
    allow_mismatch: bool = False
    runtime: str = "auto"
    """auto, torch, openvino or onnxruntime."""

    def __post_init__(self) -> None:
        """Raise ConfigError for values out of range."""
        check_fields(self)

    @classmethod
    def of(
        cls, networks: NetworkOptions | Mapping[str, Any] | str | Path | None, streams: Collection[str]
    ) -> NetworkOptions:
        """Return options from their short forms: the weights of all `streams`, or a mapping.

        Weights are a folder of `lstr finetune`, a file, or the name of fetched weights. A mapping has them as `rgb`,
        `flow` and so on, and other options by name. Raises ConfigError for an unknown name, and as `named_weights`.
        """
        from lstr.extractors.networks.published import named_weights

        if networks is None:
            return cls()
        if isinstance(networks, NetworkOptions):
            return replace(networks, weights=named_weights(networks.weights, streams))
        options: dict[str, Any] = dict(networks) if isinstance(networks, Mapping) else dict.fromkeys(streams, networks)
        weights = {stream: options.pop(stream) for stream in STREAMS if stream in options}
        known = [option.name for option in fields(cls)]
        if unknown := next((name for name in options if name not in known), None):
            words = ", ".join((*STREAMS, *known))
            raise ConfigError(f"The networks have no option {unknown!r}.", f"choose one of {words}.")
        paths = named_weights(options.pop("weights", None), streams)
        paths |= named_weights({stream: name for stream, name in weights.items() if name}, streams)
        return cls(weights=paths, **options)


@dataclass(frozen=True)
class OutputOptions:
    """Which files a detection writes, and where."""

    folder: Path | None = None
    """Gets ID.jsonl line by line and, when a source ends, ID with a suffix for each of the other `formats`."""
    formats: Collection[str] = DEFAULT_FORMATS
    lines: TextIO | None = None
    """Gets the JSONL too."""
    labels: Labels | None = None
    """Drawn next to the detections."""
    events_only: bool = False
    """Whether the JSONL has no lines of decisions, which are tens of megabytes per day of a camera."""
    embed: int = 0
    """Maximum size in bytes of a video that is put into its page."""

    @property
    def has_pages(self) -> bool:
        """Whether each source gets a page."""
        return self.folder is not None and "html" in self.formats


NO_FILES = OutputOptions()


def choose_thresholds(loaded: Checkpoint, choice: ThresholdChoice = None) -> Thresholds | Mapping[str, Thresholds]:
    """Return the thresholds to detect with: of all classes, or by class.

    A class that the choice leaves out keeps the checkpoint's. Raises ConfigError for values that contradict each
    other, and for a name that is neither a class nor a value.
    """
    if isinstance(choice, Thresholds):
        return choice
    if choice is not None and not isinstance(choice, Mapping):
        raise ConfigError(f"{choice!r} are not valid thresholds.", BY_NAME)
    if choice is None or is_values(choice):
        return thresholds_of(loaded, choice)
    own, stored = thresholds_of(loaded), loaded.extra.get("thresholds") or {}
    chosen: dict[str, Thresholds] = {}
    for label, values in choice.items():
        if label not in loaded.classes:
            raise ConfigError(
                f"{label!r} is neither a class of {loaded.path} nor a threshold.",
                f"its classes are {', '.join(loaded.classes)}; thresholds are {', '.join(NAMES)}.",
            )
        if isinstance(values, Thresholds):
            chosen[label] = values
        elif isinstance(values, Mapping) and is_values(values):
            if any(value is not None for value in values.values()):
                chosen[label] = changed(stored.get(label, {}), values)
        else:
            raise ConfigError(f"{values!r} are not valid thresholds of a class.", BY_NAME)
    return {label: own if isinstance(own, Thresholds) else own[label] for label in loaded.classes} | chosen


def is_values(choice: Mapping[str, Any]) -> bool:
    """Return whether a mapping has thresholds by name, not by class."""
    return all(name in NAMES and not isinstance(value, Thresholds | Mapping) for name, value in choice.items())


def by_kind(
    sources: Iterable[str | Path], names: Mapping[str, str | Path] | None = None
) -> tuple[list[Path], list[Input]]:
    """Return recorded and live sources, each in order; `names` are further live sources by their ids.

    Raises MissingPathError for a path that does not exist, a pattern without videos, a second `-`, a name that cannot
    be a file name or belongs to a path, and as `parse_live`. Folders are not read.
    """
    names = names or {}
    known = {str(source) for source in names.values()}
    sources = [source for source in sources if str(source) not in known]
    if [*map(str, sources), *map(str, names.values())].count("-") > 1:
        raise MissingPathError("Standard input (-) is given twice.", "name it once.")
    named: list[Input] = []
    for name, source in names.items():
        if "/" in name or fault_of(name):
            raise MissingPathError(
                f"{name!r} is not a valid source name, because file names begin with it.",
                "choose a word, as in --name door=rtsp://….",
            )
        live = parse_live(source)
        if live is None:
            raise MissingPathError(
                f"{source} is not a live source: only live sources can be named.",
                "name a camera, an address or -, as in --name door=rtsp://….",
            )
        named.append(replace(live, id=name, named=True))
    parsed = [(source, parse_live(source)) for source in sources]
    recorded = [source for source, live in parsed if live is None]
    find_videos(source for source in recorded if not (isinstance(source, str | Path) and isdir(source)))
    return [Path(source) for source in recorded], [*(live for _, live in parsed if live), *named]
