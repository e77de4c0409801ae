"""What channels were told of the sources: which there are, what the model of each knows, and how it is."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lstr.errors import CheckpointError
from lstr.extractors.errors import ExtractorError
from lstr.pipelines.detection.checkpoint import find_checkpoint
from lstr.pipelines.watching.checking import actions_in
from lstr.pipelines.watching.decider import Decider
from lstr.pipelines.watching.telling.telling import Telling


class Announced:
    """What was told last; a change is told."""

    def __init__(self) -> None:
        self._actions: dict[str, list[str]] | None = None
        self._states: dict[str, tuple[bool, bool]] = {}
        self._in_files: dict[Path | None, list[str]] = {}
        """The actions that models know which are not loaded"""

    def tell(
        self,
        telling: Telling,
        models: Mapping[str, Path | None],
        deciders: Mapping[Path | None, Decider],
        states: Mapping[str, tuple[bool, bool]],
    ) -> None:
        """Tell what has changed of the sources. models: by name. states: whether each is healthy, and is watched."""
        actions = {name: self._actions_of(model, deciders.get(model)) for name, model in models.items()}
        if actions != self._actions:
            self._actions, self._states = actions, {}
            telling.sources(actions)
        for name, state in states.items():
            if self._states.get(name) != state:
                self._states[name] = state
                telling.source_changed(name, *state)

    def _actions_of(self, model: Path | None, decider: Decider | None) -> list[str]:
        """What a model knows; of one that is not loaded, as that of a source that is paused, its file says so."""
        if decider and decider.loaded:
            self._in_files.pop(model, None)
            return decider.actions
        if model not in self._in_files:
            self._in_files[model] = []
            with suppress(CheckpointError, ExtractorError):  # its decider says what is wrong
                self._in_files[model] = actions_in(find_checkpoint(model))
        return self._in_files[model]
