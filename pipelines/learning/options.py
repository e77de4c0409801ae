"""What `lstr learn` takes, typed, and how its parts are set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.extractors.presets import Preset
from lstr.kinds import KINDS

OF_THE_MODEL = ("model", "train")
Features = tuple[str | Preset, str, str | None]
"""Recipe, streams and flow algorithm"""


@dataclass(frozen=True)
class LearnOptions:
    """Which actions to learn from which videos; `lstr learn` has an option for each."""

    videos: Sequence[str]
    """Files, folders, patterns, URLs."""
    labels: str
    """A label file of any form that `lstr labels convert` reads."""
    output: str | Path
    """The model file; what it is made of is kept in a folder beside it."""
    lists: Sequence[str] = ()
    """Files that name more videos."""
    endings: Sequence[str] = ()
    """Endings of video files in folders; none for the usual ones."""
    root: str | None = None
    """The folder that ids are relative to."""
    seconds: float | None = None
    """All that learning may take; None for as long as the plan takes."""
    recipe: str | None = None
    """How features are made; None for DIS flow alone."""
    stream: str | None = None
    """`rgb`, `flow` or `both`; None for all that a named recipe has."""
    algorithm: str | None = None
    """Algorithm of optical flow; None for that of a named recipe."""
    kind: str | None = None
    """Kind of the model that sees the features, one of `lstr.kinds.KINDS`; None for that of the preset."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """`model.NAME` and `train.NAME` of that model; NAME, rgb.NAME and flow.NAME of the feature networks."""
    init: str | None = None
    """A model file or weights that the networks begin with."""
    seed: int | None = None
    cache: str | Path | None = None
    """Where frames and flow are kept; None for the usual folder."""
    device: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """What else the model file is to state about itself."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a kind or a time that does not exist."""
        if self.kind is not None and self.kind not in KINDS:
            raise ConfigError(f"There is no kind of model {self.kind!r}.", f"choose one of {', '.join(KINDS)}.")
        if self.seconds is not None and self.seconds <= 0:
            raise ConfigError(f"A time of {self.seconds:g} s is none.", "give a time such as [[seconds=15m]].")

    @property
    def of_networks(self) -> dict[str, str]:
        """The settings of the feature networks."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] not in OF_THE_MODEL}
        return chosen | ({"seed": str(self.seed)} if self.seed is not None else {})

    @property
    def of_model(self) -> dict[str, str]:
        """The settings of the model that sees the features."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] in OF_THE_MODEL}
        kind = {"model.kind": self.kind} if self.kind else {}
        return kind | ({"train.seed": str(self.seed)} if self.seed is not None else {}) | chosen

    @property
    def names_features(self) -> bool:
        """Whether recipe, streams or flow are named."""
        return not (self.recipe is None and self.stream is None and self.algorithm is None)

    @property
    def features(self) -> "Features":
        """Recipe, streams and flow algorithm: as named, else what needs no GPU and few videos (DIS flow alone)."""
        if self.recipe is None:
            return "fast", self.stream or "flow", None if self.stream == "rgb" else self.algorithm or "dis"
        return self.recipe, self.stream or "both", self.algorithm
