"""Features in a file for each video: .npy and .npz, of which parts are mapped, and .pt of torch."""

import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import CheckpointError, RecipeError
from lstr.files.arrays import NUMBERS, open_array, read_header
from lstr.pipelines.features.rows import Array, MappedArray
from lstr.pipelines.features.stated import BESIDE

SUFFIXES = (".npy", ".npz", ".pt", ".pth")
PICKLES = (".pkl", ".pickle")
# What video_features writes beside the features of a video.
NO_FEATURES = ("_fps.npy", "_timestamps_ms.npy")
# What files of torch are called in the folder of a run.
MODELS = ("checkpoint", "best", "resume", "calibration", "scores")
NOTES = (".txt", ".md", ".csv", ".tsv")
# What reading a damaged file ends in.
UNUSABLE = (OSError, ValueError, RuntimeError, KeyError, struct.error, zipfile.BadZipFile, zlib.error, CheckpointError)
LOCAL_HEADER = 30  # bytes of a zip member's header before its name
# The most that one video's features may have out of a compressed file.
MOST_BYTES = 16 * 2**30
AGAIN = "make the features of this video again, or take the file away."


class PackedArray:
    """An array in a compressed archive, of which no part can be read alone: once it is read it is held in memory."""

    def __init__(self, path: Path, member: str, dtype: np.dtype, shape: tuple[int, int], begin: int, fortran: bool):
        self.path, self.dtype, self.shape = path, dtype, shape
        self._member, self._begin, self._fortran = member, begin, fortran
        self._held: NDArray[Any] | None = None

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by their numbers."""
        if self._held is None:
            with zipfile.ZipFile(self.path) as archive:
                numbers = np.frombuffer(archive.read(self._member)[self._begin :], self.dtype)
            self._held = numbers.reshape(self.shape, order="F" if self._fortran else "C")
        return self._held[rows]


class TensorFile:
    """A tensor in a file of torch, or the one in its table; mapped while it is read, and nothing in it is run."""

    def __init__(self, path: Path):
        self._path = path
        tensor = self._open()
        self.shape = rows_and_width(tensor.shape, path)
        half = str(tensor.dtype) == "torch.float16"
        self.dtype = np.dtype(np.float16 if half else np.float32)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by their numbers, in rising order."""
        first, last = int(rows[0]), int(rows[-1])
        return self._open()[first : last + 1].float().numpy()[rows - first]

    def _open(self) -> Any:
        import torch

        from lstr.checkpoint_claims import check_deflated

        zipped = zipfile.is_zipfile(self._path)
        if zipped:
            check_deflated(self._path)
        try:
            content = torch.load(self._path, map_location="cpu", weights_only=True, mmap=zipped)
        except Exception as error:  # a file that is no pickle fails in as many ways as it has bytes
            raise RecipeError(
                f"{self._path} holds no tensor that can be read without running code in it.",
                "save the tensor alone: torch.save(features, 'VIDEO.pt').",
            ) from error
        if isinstance(content, dict):
            tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor) and v.ndim == 2}
            content = tensors[only_array([*tensors], self._path)]
        if not isinstance(content, torch.Tensor) or content.is_complex() or content.layout != torch.strided:
            raise RecipeError(f"{self._path} holds no tensor of real numbers.", AGAIN)
        return content.detach()


def only_array(names: Sequence[str], path: Path) -> str:
    """Return the name of the one array of features in a file. Raises RecipeError if there is none or several."""
    if len(names) != 1:
        shown = f"{len(names)} arrays (rows, width): {', '.join(names[:8])}" if names else "no array (rows, width)"
        raise RecipeError(f"{path} holds {shown}.", "save the features of a video as the only such array of a file.")
    return names[0]


@dataclass(frozen=True)
class LooseFiles:
    """A folder with a file for each video. Of `ending`, each name has it after the id: `_rgb` of `VIDEO_rgb.npy`."""

    path: Path
    ending: str = ""

    @cached_property
    def files(self) -> dict[str, Path]:
        """The file of each video. Raises RecipeError where one has two."""
        found: dict[str, Path] = {}
        for path in files_below(self.path):
            name = path.relative_to(self.path).with_suffix("").as_posix()
            if not name.endswith(self.ending):
                continue
            video_id = name.removesuffix(self.ending)
            if (other := found.setdefault(video_id, path)) != path:
                raise RecipeError(f"{video_id!r} is in both {other} and {path}.", "keep one of them.")
        return found

    @property
    def format(self) -> str:
        """What the files are: `npy`, or several as `npy, pt`."""
        return ", ".join(sorted({path.suffix.removeprefix(".") for path in self.files.values()}))

    def ids(self) -> list[str]:
        """Its videos."""
        return [*self.files]

    def array(self, video_id: str) -> Array:
        """A video's array. Raises RecipeError where its file is damaged, or holds no rows of numbers."""
        path = self.files[video_id]
        try:
            if path.suffix == ".npy":
                mapped = open_array(path)
                rows_and_width(mapped.shape, path)
                return MappedArray.of(mapped)
            return in_archive(path) if path.suffix == ".npz" else TensorFile(path)
        except UNUSABLE as error:
            what = getattr(error, "strerror", None) or str(error)
            raise RecipeError(f"{path} cannot be used: {what}.", AGAIN) from error


def rows_and_width(shape: Sequence[int], path: Path) -> tuple[int, int]:
    """Return the shape of an array of features. Raises RecipeError where it is not (rows, width)."""
    if len(shape) != 2:
        raise RecipeError(f"{path} has the shape {tuple(shape)}, not (rows, width).", "store one row for each chunk.")
    return shape[0], shape[1]


def ids_below(folder: Path, ending: str = ".npy") -> set[str]:
    """Paths of files below a folder without their ending, but for hidden files: macOS puts `._ID.npy` beside each."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob(f"*{ending}") if not p.name.startswith("."))
    return {name.removesuffix(ending) for name in names}


def files_below(folder: Path) -> list[Path]:
    """The files of a folder and its folders that may be features; those of targets and hidden ones are not."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(NO_FEATURES)
        and "target_perframe" not in path.relative_to(folder).parts
    )


def is_loose(folder: Path) -> bool:
    """Whether a folder looks like a file of features for each video: nothing else is in it but notes, nor models."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    known = [path for path in files if path.suffix in SUFFIXES and path.stem not in MODELS]
    others = {path.name for path in files} - {path.name for path in known}
    return bool(known) and all(name == BESIDE or name.endswith(NOTES) for name in others)


def in_archive(path: Path) -> Array:
    """The array of features in an .npz: mapped where it is not compressed, else held in memory once it is read.

    Raises RecipeError, ValueError, OSError, KeyError or zipfile.BadZipFile.
    """
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for info in archive.infolist():
            with archive.open(info) as member:
                shape, fortran, dtype = read_header(member)
                headers[info.filename.removesuffix(".npy")] = info, member.tell(), shape, fortran, dtype
        names = [name for name, (_, _, shape, _, dtype) in headers.items() if len(shape) == 2 and dtype.kind in NUMBERS]
        info, begin, shape, fortran, dtype = headers[only_array(names, path)]
        if info.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                file.seek(info.header_offset)
                name, extra = struct.unpack("<HH", file.read(LOCAL_HEADER)[26:30])
            return MappedArray(path, dtype, shape, info.header_offset + LOCAL_HEADER + name + extra + begin, fortran)
        if info.file_size > MOST_BYTES:
            raise ValueError(f"it claims {info.file_size:.3g} bytes once it is unpacked")
        return PackedArray(path, info.filename, dtype, (shape[0], shape[1]), begin, fortran)


def refuse_pickles(path: Path) -> None:
    """Raise RecipeError for a pickle or a folder that has some: reading one can run code. The hint converts them."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    pickles = [p for p in files if p.suffix.lower() in PICKLES and not p.name.startswith(".")]
    if not pickles:
        return
    # one pickle for each video, or one with a table of all
    saved = f"[numpy.save(f'{{k}}.npy', v) for k, v in pickle.load(open('{pickles[0].name}', 'rb')).items()]"
    if len(pickles) > 1:
        saved = "import glob; [numpy.save(p[:-4], pickle.load(open(p, 'rb'))) for p in glob.glob('*.pkl')]"
    raise RecipeError(
        f"{path} is a pickle." if path.is_file() else f"{path} holds pickles, such as {pickles[0].name}.",
        f'reading one can run any code: where you trust it, run `python -c "import pickle, numpy; {saved}"` and give '
        "the folder of the .npy files.",
    )
