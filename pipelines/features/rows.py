"""Features of a video (L, D) in files, of which only the rows that are asked for are read."""

import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import CheckpointError, RecipeError
from lstr.files.arrays import NUMBERS, map_array, open_array, read_header

# What reading a damaged file can raise.
UNUSABLE = (OSError, ValueError, RuntimeError, KeyError, struct.error, zipfile.BadZipFile, zlib.error, CheckpointError)
LOCAL_HEADER_BYTES = 30  # of a zip member, before its name
MAX_UNPACKED_BYTES = 16 * 2**30  # of one video's features in a compressed file
REPAIR = "make the features of this video again, or take the file away."


class ArrayFile:
    """An array (rows, width) of a file.

    `open_rows` returns the array. It is called for each read, because a data set may have more files than a process
    may map. An array that cannot be mapped (`is_packed`) is kept in memory once it was read.
    """

    def __init__(
        self, path: Path, shape: Sequence[int], dtype: np.dtype, open_rows: Callable[[], Any], is_packed: bool = False
    ):
        if len(shape) != 2:
            raise RecipeError(
                f"{path} has the shape {tuple(shape)}, not (rows, width).", "store one row for each chunk."
            )
        self.path, self.shape, self.dtype = path, (shape[0], shape[1]), dtype
        self._open_rows, self._is_packed = open_rows, is_packed
        self._kept: NDArray[Any] | None = None

    def open(self) -> NDArray[Any]:
        """Return the whole array, mapped where that is possible."""
        if not self._is_packed:
            return self._open_rows()
        if self._kept is None:
            self._kept = self._open_rows()
        return self._kept


class FeatureRows:
    """Features (L, D) of a video as float32: the arrays of some files, side by side.

    Args:
        files: The arrays, joined along D. Without any, D is 0.
        length: L. The arrays may have more rows.
        is_checked: Raise RecipeError for rows that are not finite, as in files that other programs wrote.
    """

    ndim = 2

    def __init__(self, files: Sequence[ArrayFile], length: int, is_checked: bool = False):
        self.files, self._is_checked = files, is_checked
        self.shape = (length, sum(file.shape[1] for file in files))
        # Float16 features are exact in half the memory.
        self.dtype = np.dtype(np.float16 if {file.dtype for file in files} == {np.dtype(np.float16)} else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def until(self, length: int | None) -> "FeatureRows":
        """Return the first rows, at most `length`."""
        return self if length is None else FeatureRows(self.files, min(len(self), length), self._is_checked)

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        """Return rows by any index of numpy. Raises RecipeError where they cannot be read, or are not finite."""
        # A model without a long memory asks for no rows of it: no file is opened for that.
        if not self.files or (isinstance(key, np.ndarray) and not key.size):
            return np.broadcast_to(np.float32(0), self.shape)[key]
        return np.concatenate([self._read(file, key) for file in self.files], axis=-1, dtype=np.float32)

    def _read(self, file: ArrayFile, key: Any) -> NDArray[np.float32]:
        try:
            rows = np.asarray(file.open()[: len(self)][key], np.float32)
        except UNUSABLE as error:
            raise RecipeError(f"{file.path} cannot be read any more ({error}).", "run the command again.") from error
        if self._is_checked and not np.isfinite(rows).all():
            numbers, is_finite = np.atleast_1d(np.arange(len(self))[key]), np.isfinite(rows).all(axis=-1)
            raise RecipeError(
                f"{file.path} has numbers that are not finite in row {numbers[~np.atleast_1d(is_finite)].min()}.",
                "make the features of this video again, or take it out of the labels.",
            )
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


def open_file(path: Path, hint: str = REPAIR) -> ArrayFile:
    """Open the array of features in an .npy, .npz, .pt or .pth file; no code in it is run.

    Raises RecipeError, with `hint`, where the file is missing or damaged or does not hold one array (rows, width).
    """
    try:
        if path.suffix == ".npy":
            mapped = open_array(path)
            layout = (mapped.dtype, mapped.shape, int(mapped.offset), np.isfortran(mapped))
            return ArrayFile(path, mapped.shape, mapped.dtype, partial(map_array, path, *layout))
        if path.suffix == ".npz":
            return _open_npz(path)
        array = _open_tensor(path)
        return ArrayFile(path, array.shape, array.dtype, partial(_open_tensor, path))
    except UNUSABLE as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecipeError(f"{path} cannot be used: {reason}.", hint) from error


def _open_npz(path: Path) -> ArrayFile:
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for info in archive.infolist():
            with archive.open(info) as member:
                headers[info.filename.removesuffix(".npy")] = info, read_header(member), member.tell()
        names = [
            name for name, (_, (shape, _, dtype), _) in headers.items() if len(shape) == 2 and dtype.kind in NUMBERS
        ]
        info, (shape, fortran, dtype), begin = headers[_only_name(names, path)]
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(LOCAL_HEADER_BYTES)[26:30])
        offset = info.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes + begin
        return ArrayFile(path, shape, dtype, partial(map_array, path, dtype, shape, offset, fortran))
    if info.file_size > MAX_UNPACKED_BYTES:
        raise ValueError(f"it claims {info.file_size:.3g} bytes once it is unpacked")
    layout = (info.filename, begin, dtype, shape, fortran)
    return ArrayFile(path, shape, dtype, partial(_unpack, path, *layout), is_packed=True)


def _unpack(
    path: Path, member: str, begin: int, dtype: np.dtype, shape: tuple[int, ...], fortran: bool
) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive:
        return np.frombuffer(archive.read(member)[begin:], dtype).reshape(shape, order="F" if fortran else "C")


def _open_tensor(path: Path) -> NDArray[Any]:
    """Return the tensor of a file of torch, or the one (rows, width) in its table, mapped where it can be."""
    import torch

    from lstr.loaded_checkpoint import check_deflated

    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        check_deflated(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # a file that is not a pickle fails in as many ways as it has bytes
        raise RecipeError(
            f"{path} holds no tensor that can be read without running code in it.",
            "save the tensor alone: torch.save(features, 'VIDEO.pt').",
        ) from error
    if isinstance(content, dict):
        tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor) and v.ndim == 2}
        content = tensors[_only_name([*tensors], path)]
    if not isinstance(content, torch.Tensor) or content.is_complex() or content.layout != torch.strided:
        raise RecipeError(f"{path} holds no tensor of real numbers.", REPAIR)
    content = content.detach()
    return (content.float() if content.dtype == torch.bfloat16 else content).numpy()  # numpy has no bfloat16


def _only_name(names: Sequence[str], path: Path) -> str:
    if len(names) != 1:
        shown = f"{len(names)} arrays (rows, width): {', '.join(names[:8])}" if names else "no array (rows, width)"
        raise RecipeError(f"{path} holds {shown}.", "save the features of a video as the only such array of a file.")
    return names[0]
