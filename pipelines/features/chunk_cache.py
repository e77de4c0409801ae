"""Chunks and their flow on disk, so that networks are trained and changed without decoding or computing flow again.

Layout: CACHE/<12 hex digits of the chunk recipe>/recipe.json, and for a video KEY.npy (L, P, H, W) uint8 with KEY.json,
written last. The P planes are those of the frames that `keeps` names (red, green and blue of the central frame; the
brightness of all six; or the colours of all six), then the ten of flow if the recipe has any. A video's key is the
SHA-256 of its file: one that was copied, moved or touched is found, one that was changed is not. Every chunk is checked
against its CRC-32 when it is read.
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

# The entries of a recipe that chunks depend on; the others concern the networks.
FIELDS = ("fps", "chunk", "rgb_frame", "long_side", "resize", "flow_algorithm", "flow_bound")
KEEPS = "keeps"
GREY, COLOUR = "grey", "colour"
# Planes by what is kept: the central frame, or all frames without and with their colours.
PLANES = {None: 3, GREY: CHUNK, COLOUR: 3 * CHUNK}
FLOW_PLANES = 10
# Bytes. A chunk of 320×240 with flow takes 1 MB, so this is three and a half hours of video.
DEFAULT_SIZE = 50 * 10**9
FRAMES_AHEAD = 4  # chunks decoded ahead where no flow is computed


def chunk_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the entries of a recipe that chunks and flow depend on."""
    made = {name: value for name, value in asdict(recipe).items() if name in FIELDS}
    if recipe.change or (recipe.rgb and (recipe.grey or recipe.difference)):
        return made | {KEEPS: COLOUR}
    return made | {KEEPS: GREY} if recipe.grey or recipe.difference else made


def planes_of(made: Mapping[str, Any]) -> int:
    """Return the planes of a chunk, each a byte per pixel, of a chunk recipe."""
    return PLANES[made.get(KEEPS)] + (FLOW_PLANES if made["flow_algorithm"] else 0)


@dataclass(frozen=True)
class CachedVideo:
    """A cached video: its chunks (L, P, H, W) uint8, memory-mapped, and what its record says of the source."""

    path: Path
    chunks: NDArray[np.uint8]
    record: Mapping[str, Any]
    # What made the chunks
    recipe: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.chunks)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process map the file for itself."""
        return _mapped, (self.path, self.record, self.recipe)

    def read(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return a chunk's frames, (6, H, W, 3) RGB or (6, H, W) grey, and flow (10, H, W), uint8.

        A cache that keeps only the central frame returns it six times, one without flow (0, H, W). Raises CacheError
        for a damaged chunk.
        """
        # CRC-32 finds what a disk damages, and is cheap enough for each chunk of each epoch.
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
        """Return the input of one stream for a chunk, (H, W, C), with a camera's `movement`. Raises as `read`."""
        frames, flow = self.read(index)
        if movement is not None:
            if stream in WITHOUT_COLOUR:  # a third of the pixels
                frames = _greys(frames)
            frames = shaken(frames, movement)
        return picture_of(stream, frames, flow, self.recipe["rgb_frame"])

    def verify(self, what: str) -> Generator[Progress, None, bool]:
        """Return whether every chunk is as it was written; reads them all, with progress of `what`."""
        try:
            for index in range(len(self)):
                self.read(index)
                yield Progress(what, index + 1, len(self))
        except CacheError:
            return False
        return True


def _greys(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return frames (6, H, W, 3) or (6, H, W) as grey ones (6, H, W)."""
    return frames if frames.ndim == 3 else np.stack([grey_of(frame) for frame in frames])


def _mapped(path: Path, record: Mapping[str, Any], recipe: Mapping[str, Any]) -> CachedVideo:
    return CachedVideo(path, open_array(path), record, recipe)


class ChunkCache:
    """A folder of cached videos of one chunk recipe; all recipes of the cache share `size` bytes.

    To make room, the least recently used videos of any recipe are removed first.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any], size: int = DEFAULT_SIZE):
        self.root = path
        self.recipe = dict(recipe)
        self.size = size
        canonical = json.dumps(recipe, sort_keys=True, separators=(",", ":"))
        self.path = path / hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def find(self, sha256: str) -> CachedVideo | None:
        """Return the cached chunks of the video file with this SHA-256; None if they are missing or not whole."""
        array = self._array(sha256)
        try:
            record = json.loads(_record(array).read_text(encoding="utf-8"))
            chunks = open_array(array)
            shape = tuple(record["shape"])
            if chunks.shape != shape or chunks.dtype != np.uint8 or len(record["crc32"]) != len(chunks):
                return None
            if record["decoded"]["chunks"] != len(chunks) or record["sha256"] != sha256:
                return None
        except (OSError, ValueError, EOFError, KeyError, TypeError):
            return None
        with suppress(OSError):  # another user's file, or removed meanwhile
            os.utime(_record(array))  # the time of its last use
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
        """Decode a video, compute its flow and write both; may remove others to make room, except those of `keep`.

        Both are SHA-256 of files. `opened` is what `open_chunks` returns for the source. A recipe without flow needs
        no workers. `what` names the progress. Raises VideoError when it is damaged, OutputError without room.
        """
        video, reader, chunks = opened
        shape, keeps = self.shape(video), self.recipe.get(KEEPS)
        self.make_room(video.n_chunks * math.prod(shape), {self._array(other) for other in keep})
        in_flight = workers.ahead if workers else FRAMES_AHEAD
        array = self._array(sha256)
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
        # Last, so that an array whose run was killed counts as missing.
        write_json(_record(array), record)
        return CachedVideo(array, open_array(array), record, self.recipe)

    def shape(self, video: Video) -> tuple[int, int, int]:
        """Return the planes, height and width of a video's chunks, one byte each."""
        width, height = video.size(self.recipe["long_side"])
        return planes_of(self.recipe), height, width

    def drop(self, video: CachedVideo) -> None:
        """Remove a video, so that it is decoded again."""
        for path in (_record(video.path), video.path):
            path.unlink(missing_ok=True)

    def make_room(self, wanted: int, keep: Collection[Path] = ()) -> None:
        """Remove the least recently used videos until `wanted` more bytes fit. Raises OutputError when they cannot."""
        sizes, last_uses = dict[Path, int](), dict[Path, float]()
        for array in self.root.glob("*/*.npy"):
            with suppress(FileNotFoundError):  # another process removed it
                sizes[array] = array.stat().st_size
                last_uses[array] = 0.0  # a video without its record is of a killed run, and is removed first
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


def find_cache(named: str | None) -> Path | None:
    """Return the `named` folder, else the default one if it exists. Raises MissingPathError for another `named`."""
    if named and not Path(named).is_dir():
        raise MissingPathError(f"{named} is not a folder.", "name a cache that `lstr finetune` wrote, or leave it out.")
    path = Path(named).absolute() if named else home() / "chunks"
    return path if path.is_dir() else None


def caches_of(root: Path, recipe: Recipe) -> list[ChunkCache]:
    """Return the caches below `root` whose chunks a recipe's features can be computed from.

    Features without flow can be computed from chunks with any flow, all features from chunks with all colours.
    """
    return [cache for made in serving(chunk_recipe(recipe)) if (cache := ChunkCache(root, made)).path.is_dir()]


def serving(made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunk recipes that can replace `made`, itself first: those with more flow or more frames."""
    algorithms = (made["flow_algorithm"], *(() if made["flow_algorithm"] else ALGORITHMS.values()))
    plain = {name: value for name, value in made.items() if name != KEEPS}
    more = [made] if made.get(KEEPS) == COLOUR else [made, plain | {KEEPS: COLOUR}]
    for algorithm in algorithms:
        yield from (kept | {"flow_algorithm": algorithm} for kept in more)


def decoded_facts(video: Video, reader: FrameReader, n_chunks: int, backend: str | None) -> dict[str, Any]:
    """Return the entries of a record on a video that was decoded to its end, and on the flow backend."""
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
