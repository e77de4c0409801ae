"""What a feature folder on this machine and one elsewhere do alike."""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from lstr.checkpoint_entries import is_tables
from lstr.errors import CheckpointError, RecipeError, VideoError
from lstr.extractors.recipe import Recipe
from lstr.files.arrays import ZIP
from lstr.files.content import read_jsonl, write_jsonl
from lstr.files.remote import Place, RemoteFile, content_of

Where = TypeVar("Where", Path, RemoteFile)


def seen_streams(record: Mapping[str, Any] | None) -> Sequence[str] | None:
    """The streams whose network has seen a record's video; None where it does not say."""
    seen = (record or {}).get("seen")
    return seen if isinstance(seen, list) else None


class Features(Generic[Where]):
    """What a feature folder on this machine (`FeatureFolder`) and one elsewhere (`RemoteFeatures`) do alike."""

    path: Where
    recipe: Recipe | None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it has, in the order of STREAMS."""
        raise NotImplementedError

    def array(self, stream: str, video_id: str) -> Where:
        """One stream's array of a video."""
        raise NotImplementedError

    def record(self, video_id: str) -> Where:
        """A video's record."""
        return self.path.joinpath("records", f"{video_id}.json")

    def staged(self, video_id: str) -> AbstractContextManager[Any]:
        """A FeatureFolder on this machine to put a video's arrays and record into. Raises OutputError."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Remove the temporary files of killed runs, where those leave any."""

    def records(self) -> list[dict[str, Any]]:
        """The records of all videos, by id."""
        raise NotImplementedError

    def is_whole(self, stream: str, video_id: str, record: Mapping[str, Any]) -> bool:
        """Whether an array is as long as its video's record says, with its rows. Raises what reading it does."""
        raise NotImplementedError

    def compile(self) -> None:
        """Write `videos.jsonl` from the records, where it would change: a finished folder may be read-only."""
        videos = self.records()
        if videos != read_jsonl(self.path.joinpath("videos.jsonl")):
            write_jsonl(self.path.joinpath("videos.jsonl"), videos)

    def calibration(self) -> dict[str, Any]:
        """Batch-norm statistics of the random networks that made the folder, by stream; empty otherwise.

        Raises RecipeError for a file of anything else; nothing in it is run.
        """
        path = self.path.joinpath("calibration.pt")
        content = content_of(path)
        if content is None:
            return {}
        import torch

        from lstr.checkpoint_claims import check_deflated, check_plain

        found: Any = None
        try:
            if content.startswith(ZIP):
                check_deflated(path, io.BytesIO(content))
            with suppress(Exception):  # a file that is no pickle fails in as many ways as it has bytes
                found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            for stream, tensors in found.items() if is_tables(found) else ():
                check_plain(path, {f"{stream}/{name}": tensor for name, tensor in tensors.items()})
        except CheckpointError as error:
            raise RecipeError(str(error), "extract into a new folder.") from error
        if not is_tables(found):
            raise RecipeError(f"{path} is damaged, or holds no tables of tensors.", "extract into a new folder.")
        return found

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """A video's record; None where it has none, or none that can be read."""
        try:
            record = json.loads(content_of(self.record(video_id)) or b"")
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def is_done(self, video_id: str, source: Place) -> bool:
        """Whether this source (by size and time) is finished under this recipe, with its arrays whole.

        Elsewhere eleven small requests, and MissingPathError where the folder cannot be reached.
        """
        record = self.read_record(video_id)
        if record is None or self.recipe is None:
            return False
        try:
            stat = source.stat()
            same = (record["bytes"], record["mtime"], record["recipe"]) == (stat.st_size, stat.st_mtime, self.recipe.id)
            return same and all(self.is_whole(stream, video_id, record) for stream in self.streams)
        except (OSError, TypeError, ValueError, AttributeError, LookupError, RecipeError, VideoError):
            return False
