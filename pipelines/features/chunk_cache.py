"""A disk cache of chunks and their flow, so that other networks can use them without decoding or computing flow again.

Layout: CACHE/<12 hex digits of the chunk recipe>/recipe.json, and for each video KEY.npy (L, P, H, W) uint8 with
KEY.json, written last. The P planes are the frames according to `keeps` (RGB of the central frame, or the brightness or
the colours of all six frames), followed by ten planes of flow if the recipe has flow. The key of a video is the SHA-256
of its file, so a copied or moved file is found, and a changed file is not. Every chunk is checked against its CRC-32
when it is read.
"""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import CacheError, MissingPathError, OutputError, VideoError
from lstr.extractors.flow.workers import ALGORITHMS, FlowWorkers
from lstr.extractors.networks.crops import WITHOUT_COLOUR, Movement, grey_of, picture_of, shaken
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import Ahead
from lstr.extractors.stages import WRITE
from lstr.extractors.video.frames import CHUNK, Chunk, n_frames_until
from lstr.extractors.video.probe import Video
from lstr.extractors.video.reader import FrameReader
from lstr.files.arrays import RowFile, open_array
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.files.home import home
from lstr.pipelines.progress import Progress

# The entries of a recipe that affect chunks; the others affect only networks.
FIELDS = ("fps", "chunk", "rgb_frame", "long_side", "resize", "flow_algorithm", "flow_bound")
KEEPS = "keeps"
GREY, COLOUR = "grey", "colour"
# Number of planes by the value of `keeps`: the central frame, all frames in grey, or all frames in colour.
PLANES = {None: 3, GREY: CHUNK, COLOUR: 3 * CHUNK}
FLOW_PLANES = 10
# In bytes. A chunk of 320×240 with flow takes 1 MB, so this is enough for three and a half hours of video.
DEFAULT_SIZE = 50 * 10**9
FRAMES_AHEAD = 4  # chunks decoded ahead if no flow is computed


def chunk_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the entries of a recipe that affect chunks and flow."""
    made = {name: value for name, value in asdict(recipe).items() if name in FIELDS}
    if recipe.change or recipe.pose or (recipe.rgb and (recipe.grey or recipe.difference)):
        return made | {KEEPS: COLOUR}
    return made | {KEEPS: GREY} if recipe.grey or recipe.difference else made


def planes_of(made: Mapping[str, Any]) -> int:
    """Return the number of planes of a chunk for a chunk recipe; a plane has one byte per pixel."""
    return PLANES[made.get(KEEPS)] + (FLOW_PLANES if made["flow_algorithm"] else 0)


@dataclass(frozen=True)
class CachedVideo:
    """A cached video: its memory-mapped chunks (L, P, H, W) uint8, and the record of its source."""

    path: Path
    chunks: NDArray[np.uint8]
    record: Mapping[str, Any]
    recipe: Mapping[str, Any]  # the recipe of the chunks

    def __len__(self) -> int:
        return len(self.chunks)

    @classmethod
    def open(cls, path: Path, record: Mapping[str, Any], recipe: Mapping[str, Any]) -> "CachedVideo":
        """Map the chunks of a file."""
        return cls(path, open_array(path), record, recipe)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the path, so that another process maps the file itself."""
        return CachedVideo.open, (self.path, self.record, self.recipe)

    def read(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return a chunk's frames, (6, H, W, 3) RGB or (6, H, W) grey, and flow (10, H, W), uint8.

        If only the central frame is cached, it is returned six times; without flow the shape is (0, H, W). Raises
        CacheError for a damaged chunk.
        """
        # CRC-32 detects damage on disk, and is fast enough for each chunk of each epoch.
        planes = np.ascontiguousarray(self.chunks[index])
        if zlib.crc32(planes.data) != self.record["crc32"][index]:
            raise CacheError(
                f"Chunk {index} of {self.path} is damaged.", f"delete {self.path}, and run the same command again."
            )
        keeps = self.recipe.get(KEEPS)
        pictures, flow = planes[: PLANES[keeps]], planes[PLANES[keeps] :]
        if keeps == GREY:
            return pictures, flow
        colours = pictures.reshape(-1, 3, *pictures.shape[1:]).transpose(0, 2, 3, 1)  # (1 or 6, H, W, 3)
        return np.broadcast_to(np.ascontiguousarray(colours), (CHUNK, *colours.shape[1:])), flow

    def picture(self, index: int, stream: str, movement: Movement | None = None) -> NDArray[np.uint8]:
        """Return the input image (H, W, C) of a stream for a chunk, with a simulated `movement`. Raises as `read`."""
        frames, flow = self.read(index)
        if movement is not None:
            if stream in WITHOUT_COLOUR:  # grey first: a third of the values to shift
                frames = _greys(frames)
            frames = shaken(frames, movement)
        return picture_of(stream, frames, flow, self.recipe["rgb_frame"])

    def verify(self, what: str) -> Generator[Progress, None, bool]:
        """Read all chunks and return whether they are undamaged; `what` is the name in Progress events."""
        try:
            for index in range(len(self)):
                self.read(index)
                yield Progress(what, index + 1, len(self))
        except CacheError:
            return False
        return True

    def drop(self) -> None:
        """Remove the video from its cache, so that it is decoded again."""
        for path in (_record(self.path), self.path):
            path.unlink(missing_ok=True)


def _greys(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert frames (6, H, W, 3) or (6, H, W) to grey (6, H, W)."""
    return frames if frames.ndim == 3 else np.stack([grey_of(frame) for frame in frames])


class ChunkCache:
    """A folder of cached videos of one chunk recipe; all recipes of the cache share `size` bytes.

    If space is needed, the least recently used videos of all recipes are removed first.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any], size: int = DEFAULT_SIZE):
        self.root = path
        self.recipe = dict(recipe)
        self.size = size
        canonical = json.dumps(recipe, sort_keys=True, separators=(",", ":"))
        self.path = path / hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def find(self, sha256: str) -> CachedVideo | None:
        """Return the cached chunks of the video file with this SHA-256; None if they are missing or incomplete."""
        array = self._array(sha256)
        try:
            record = json.loads(_record(array).read_text(encoding="utf-8"))
            chunks = open_array(array)
            if chunks.shape != tuple(record["shape"]) or chunks.dtype != np.uint8 or record["sha256"] != sha256:
                return None
            if not len(chunks) == len(record["crc32"]) == record["decoded"]["chunks"]:
                return None
        except (OSError, ValueError, EOFError, KeyError, TypeError):
            return None
        with suppress(OSError):  # the file belongs to another user, or was removed
            os.utime(_record(array))  # the time of the last use
        return CachedVideo(array, chunks, record, self.recipe)

    def fill(
        self,
        sha256: str,
        source: Path,
        opened: tuple[Video, FrameReader, Iterator[Chunk]],
        workers: FlowWorkers | None,
        keep: Collection[str] = (),
        what: str = "chunks",
    ) -> Generator[Progress, None, CachedVideo]:
        """Decode a video, compute its flow and write both to the cache.

        Args:
            sha256: SHA-256 of the file.
            source: The file.
            opened: The result of `open_chunks` for the file.
            workers: Threads that compute flow; None for a recipe without flow.
            keep: SHA-256 of cached files that must not be removed to make room.
            what: Name in Progress events.

        Raises:
            VideoError: The video is damaged.
            OutputError: There is not enough space.
        """
        video, reader, chunks = opened
        shape, keeps, array = self.shape(video), self.recipe.get(KEEPS), self._array(sha256)
        self.make_room(video.n_chunks * math.prod(shape), {self._array(other) for other in keep})
        in_flight = workers.ahead if workers else FRAMES_AHEAD
        checks: list[int] = []
        submitted = ((chunk, workers.submit(chunk.frames) if workers else None) for chunk in chunks)
        with replacing(array) as temporary:
            rows = RowFile(temporary, shape, "|u1")
            with closing(rows), closing(Ahead(submitted, in_flight, "reader")) as reading:
                for chunk, flow in reading:
                    if keeps == GREY:
                        planes = _greys(chunk.frames)
                    else:
                        shown = chunk.frames if keeps == COLOUR else chunk.frames[self.recipe["rgb_frame"]][None]
                        planes = shown.transpose(0, 3, 1, 2).reshape(-1, *shown.shape[1:3])
                    if flow:
                        planes = np.concatenate([planes, flow.result()])  # (P, H, W)
                    planes = np.ascontiguousarray(planes)
                    with WRITE:
                        rows.append(planes)
                    checks.append(zlib.crc32(planes.data))
                    yield Progress(what, len(checks), video.n_chunks)
                if not checks:
                    raise VideoError(f"{source} is damaged before its first chunk ends.", "use another video.")
                with WRITE:
                    rows.finish()
        record = {
            "source": str(source),
            "sha256": sha256,
            "shape": [len(checks), *shape],
            "crc32": checks,
            "decoded": decoded_facts(video, reader, len(checks), workers.backend if workers else None),
        }
        if not (self.path / "recipe.json").exists():
            write_json(self.path / "recipe.json", self.recipe)
        # Written last, so that the array of a killed run counts as missing.
        write_json(_record(array), record)
        return CachedVideo.open(array, record, self.recipe)

    def shape(self, video: Video) -> tuple[int, int, int]:
        """Return the shape (P, H, W) of a video's chunks, in bytes."""
        width, height = video.size(self.recipe["long_side"])
        return planes_of(self.recipe), height, width

    def make_room(self, wanted: int, keep: Collection[Path]) -> None:
        """Remove the least recently used videos until `wanted` more bytes fit. Raises OutputError if they cannot."""
        sizes, last_uses = dict[Path, int](), dict[Path, float]()
        for array in self.root.glob("*/*.npy"):
            with suppress(FileNotFoundError):  # another process removed it
                sizes[array] = array.stat().st_size
                last_uses[array] = 0.0  # a video without a record belongs to a killed run, and is removed first
                last_uses[array] = _record(array).stat().st_mtime
        used = sum(sizes.values())
        for array in sorted(last_uses.keys() - set(keep), key=last_uses.__getitem__):
            if used + wanted <= self.size:
                return
            used -= sizes[array]
            for path in (_record(array), array):
                path.unlink(missing_ok=True)
        if used + wanted > self.size:
            raise OutputError(
                f"The chunks need {(used + wanted) / 1e9:.1f} GB in {self.root}; the limit is "
                f"{self.size / 1e9:.1f} GB.",
                "raise it with --set cache_size=SIZE, or give fewer videos.",
            )

    def _array(self, sha256: str) -> Path:
        return self.path / f"{sha256[:24]}.npy"


def find_cache(named: str | Path | None) -> Path | None:
    """Return the folder `named`, or the default folder if it exists. Raises MissingPathError if `named` is missing."""
    if named and not Path(named).is_dir():
        raise MissingPathError(
            f"{named} is not a folder.", "use a cache that `lstr finetune` wrote, or leave out --set cache=DIR."
        )
    path = Path(named).absolute() if named else home() / "chunks"
    return path if path.is_dir() else None


def caches_of(root: Path, made: Mapping[str, Any]) -> list[ChunkCache]:
    """Return the caches in `root` with at least the chunk recipe `made`: also with flow, or with more frames.

    Features without flow can use chunks with any flow, and all features can use chunks with all colours.
    """
    algorithms = [made["flow_algorithm"]] if made["flow_algorithm"] else [None, *ALGORITHMS.values()]
    recipes = [{**made, "flow_algorithm": algorithm} for algorithm in algorithms]
    caches = [ChunkCache(root, each | more) for each in recipes for more in ({}, {KEEPS: COLOUR})]
    return [*{cache.path: cache for cache in caches if cache.path.is_dir()}.values()]


def decoded_facts(video: Video, reader: FrameReader, n_chunks: int, backend: str | None) -> dict[str, Any]:
    """Return the entries of a record about a completely decoded video, and about the flow backend."""
    return {
        "duration": float(reader.end),
        "chunks": n_chunks,
        "announced_chunks": video.n_chunks,
        "frames_24fps": n_frames_until(reader.end),
        "decoded_frames": reader.decoded,
        "header_frames": video.header_frames,
        "decode_errors": reader.decode_errors,
        "clock": reader.clock,
        "decoder": reader.decoder,
        "flow_backend": backend,
    }


def _record(array: Path) -> Path:
    return array.with_suffix(".json")
