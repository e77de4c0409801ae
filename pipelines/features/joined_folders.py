"""Several feature folders read as one, for training and evaluation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lstr.chunk import Clock
from lstr.errors import RecipeError
from lstr.extractors.recipe import Recipe, differences
from lstr.pipelines.features.folder import FeatureFolder, open_features
from lstr.pipelines.features.stated import NOTHING, Stated


@dataclass(frozen=True)
class FeatureFolders:
    """Several feature folders of one recipe, read as one."""

    folders: tuple[FeatureFolder, ...]

    @property
    def path(self) -> str:
        """Where they are, for people."""
        return ", ".join(str(folder.path) for folder in self.folders)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of all."""
        return self.folders[0].recipe

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams' folders in all of them."""
        return tuple(dict.fromkeys(name for folder in self.folders for name in folder.names))

    @property
    def clock(self) -> Clock:
        """When the chunks of all are."""
        return self.folders[0].clock

    def on(self, clock: Clock) -> "FeatureFolders":
        """The same by the clock of a model. Raises RecipeError where one has another."""
        return FeatureFolders(tuple(folder.on(clock) for folder in self.folders))

    def describe(self) -> dict[str, Any] | None:
        """What a model keeps of stores of other people; that of the first."""
        return self.folders[0].describe()

    def only(self, streams: Collection[str]) -> "FeatureFolders":
        """The same without other streams than these."""
        return FeatureFolders(tuple(folder.only(streams) for folder in self.folders))

    def ids(self) -> list[str]:
        """Videos of all folders, sorted. Raises RecipeError when two folders hold the same one."""
        found = sorted(video_id for folder in self.folders for video_id in folder.ids())
        twice = [one for one, other in pairwise(found) if one == other]
        if twice:
            raise RecipeError(
                f"{len(twice)} videos are in more than one of {self.path}, as {twice[0]!r}.", "keep one of each."
            )
        return found

    def load(self, video_id: str) -> tuple[Any, Any]:
        """RGB (L, D) and flow (L, D), memory-mapped, from the folder that has them."""
        return self._holding(video_id).load(video_id)

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """A video's record, from the folder that has its arrays."""
        return self._holding(video_id).read_record(video_id)

    def calibration(self) -> dict[str, Any]:
        """The calibration of the first folder; a recipe has one."""
        return self.folders[0].calibration()

    def _holding(self, video_id: str) -> FeatureFolder:
        return next((folder for folder in self.folders if folder.has(video_id)), self.folders[0])


def open_roots(
    paths: Sequence[str | Path], rgb: str | None = None, flow: str | None = None, stated: Stated = NOTHING
) -> FeatureFolder | FeatureFolders:
    """One feature folder, or several of one recipe read as one. Raises RecipeError when their recipes differ."""
    folders = tuple(open_features(path, rgb, flow, stated) for path in paths)
    first = folders[0]
    for folder in folders[1:]:
        if folder.recipe != first.recipe:
            difference = (
                "; ".join(differences(first.recipe, folder.recipe))
                if first.recipe and folder.recipe
                else "only one has a recipe.json"
            )
            raise RecipeError(
                f"{first.path} and {folder.path} hold features of different recipes ({difference}).",
                "give features of one recipe.",
            )
        names = {f.names for f in (first, folder)}
        if len(names) > 1:
            raise RecipeError(
                f"{first.path} and {folder.path} hold different features: {sorted(names)}.",
                "name the same two in both with --set rgb_features=NAME and --set flow_features=NAME.",
            )
        if {str(f.store and f.store.clock) for f in (first, folder)} != {str(first.store and first.store.clock)}:
            raise RecipeError(
                f"{first.path} and {folder.path} hold features of other rates.", "give features of one rate."
            )
    return first if len(folders) == 1 else FeatureFolders(folders)
