"""One scale of TV-L1 for a batch of pairs in one launch of the CUDA kernel tvl1_cluster.cu.

A cluster of thread blocks keeps a pair in its registers and shared memory. A scale therefore fits only up to a size:
about 7,000 pixels per block, and at most 16 blocks. Clusters need a GPU of compute capability 9.0 (Hopper) or later;
older GPUs run the same kernel with one block per pair, which fits only the smallest scales.

NVRTC compiles the kernel on the machine where it runs, and the result is stored, so no compiler has to be installed.
NVRTC and the driver are called through cuda-bindings; the CUDA builds of torch contain both.
"""

from __future__ import annotations

import ctypes
import hashlib
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lstr.errors import FlowError, OutputError, first_line
from lstr.extractors.flow.tvl1 import image_planes, stop_bound
from lstr.files.atomic import replacing
from lstr.files.home import home

THREADS = 512  # per block
PIXELS, PIXELS_ALONE = 15, 12  # maximum per thread: limited by its registers, in a cluster and in a single block
PLANES = 7  # of float32, in shared memory
STATIC = 1024  # bytes; upper bound of the kernel's other shared memory
WITH_CLUSTERS = (9, 0)  # compute capability
BLOCKS = (1, 2, 4, 8, 16)  # per cluster; every GPU with clusters supports 8, but not every one 16
FUNCTION = b"solve_scale"
HERE = Path(__file__).parent
SOURCE, HEADERS = HERE / "tvl1_cluster.cu", (HERE / "tvl1_median.h", HERE / "tvl1_band.h")
FOLDER = "kernels"  # in the home folder
CHECK_BYTES = 4  # at the start of a stored file: the checksum of the remaining bytes


def compile_options(clusters: bool) -> tuple[str, ...]:
    """Return the compiler's options for the kernel with clusters of blocks, or with one block per pair."""
    # no fused multiply-add, and subnormal numbers are zero, as in tvl1.c: results must be equal to the bit
    options = ("--std=c++17", "--fmad=false", "--ftz=true", "--ptxas-options=-v")
    sizes = (f"-DTHREADS={THREADS}", f"-DPIXELS={PIXELS if clusters else PIXELS_ALONE}", f"-DCLUSTERS={int(clusters)}")
    return options + sizes


def code_key(options: Sequence[str], architecture: str, made_by: str) -> str:
    """Return a hash of everything that the compiled kernel depends on; `made_by` names compiler and driver."""
    content = hashlib.sha256()
    for part in (*options, architecture, made_by, *(path.read_text() for path in (SOURCE, *HEADERS))):
        content.update(part.encode() + b"\0")
    return content.hexdigest()


def bindings() -> tuple[Any, Any]:
    """Return the driver and NVRTC modules of cuda-bindings. Raises FlowError if they cannot be loaded."""
    try:
        from cuda.bindings import driver, nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # a missing or incompatible library can raise any type
        raise FlowError(
            f"NVRTC, which compiles the CUDA kernel of TV-L1, cannot be loaded ({first_line(error)}).",
            "install torch's build for CUDA, which brings it, or cuda-bindings and nvidia-cuda-nvrtc.",
        ) from error
    return driver, nvrtc


def checked(returned: tuple[Any, ...]) -> Any:
    """Return the result of a call of cuda-bindings without its status code: None, a value or a tuple.

    Raises FlowError for an error code.
    """
    code, *values = returned
    if int(code):
        raise FlowError(f"CUDA reports the error {code.name}.")
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def compile_kernel(options: Sequence[str], architecture: str) -> tuple[bytes, str]:
    """Compile the kernel for an architecture, such as sm_90; needs no GPU.

    Returns the code, and the compiler's log with its use of registers and memory. Raises FlowError with NVRTC's error.
    """
    _, nvrtc = bindings()

    def read(size_of: Any, get: Any) -> bytes:
        text = bytes(max(size := checked(size_of(program)), 2))  # NVRTC writes into it; Python shares single bytes
        checked(get(program, text))
        return text[:size]

    texts = [path.read_bytes() for path in HEADERS]
    names = [path.name.encode() for path in HEADERS]
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), SOURCE.name.encode(), len(names), texts, names))
    try:
        encoded = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        result = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace").rstrip("\0\n ")
        if int(result):
            reason = next((line for line in log.splitlines() if "error" in line), result.name)
            raise FlowError(f"NVRTC does not compile {SOURCE.name} for {architecture}: {reason}")
        return read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def load_code(options: Sequence[str], architecture: str) -> bytes:
    """Return compiled code from the home folder, or compile and store it for later processes.

    A damaged file is replaced. If the folder is not writable, each process compiles again.
    """
    driver, nvrtc = bindings()
    made_by = f"{checked(nvrtc.nvrtcVersion())} {checked(driver.cuDriverGetVersion())}"
    path = home() / FOLDER / f"{SOURCE.stem}-{architecture}-{code_key(options, architecture, made_by)[:20]}.cubin"
    with suppress(OSError):
        content = path.read_bytes()
        if zlib.crc32(content[CHECK_BYTES:]).to_bytes(CHECK_BYTES, "little") == content[:CHECK_BYTES]:
            return content[CHECK_BYTES:]
    code, _ = compile_kernel(options, architecture)
    with suppress(OSError, OutputError), replacing(path) as temporary:
        temporary.write_bytes(zlib.crc32(code).to_bytes(CHECK_BYTES, "little") + code)
    return code


@dataclass(frozen=True)
class Layout:
    """The number of blocks for a scale, and the bytes of shared memory of each."""

    blocks: int
    memory: int


def layouts(h: int, w: int, most_blocks: int, block_memory: int) -> list[Layout]:
    """Return the layouts that fit images (h, w), fewest blocks first; empty if the images are too large.

    A cluster of the GPU has at most `most_blocks`, each with `block_memory` bytes of shared memory.
    """
    found = []
    pixels = THREADS * (PIXELS if most_blocks > 1 else PIXELS_ALONE)
    for blocks in BLOCKS:
        rows = -(-h // blocks)  # of a band
        memory = PLANES * 4 * (rows + 1) * w
        # a median reaches two rows into the next band
        fits = rows * w <= pixels and memory + STATIC <= block_memory and (blocks == 1 or rows >= 2)
        if fits and blocks <= most_blocks:
            found.append(Layout(blocks, memory))
    return found


class ClusterKernel:
    """The kernel on one GPU. Raises FlowError if it cannot be compiled or loaded."""

    def __init__(self, device: torch.device):
        self.driver, _ = bindings()
        self.device = device
        self.context = self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", device.index))  # torch's own
        properties = torch.cuda.get_device_properties(device)
        capability = properties.major, properties.minor
        self.clusters = capability >= WITH_CLUSTERS
        self.processors = properties.multi_processor_count
        architecture = f"sm_{capability[0]}{capability[1]}"
        code = load_code(compile_options(self.clusters), architecture)
        self._enter()
        self.function = self._call("cuModuleGetFunction", self._call("cuModuleLoadData", code), FUNCTION)
        optin = self.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self.block_memory = self._call("cuDeviceGetAttribute", optin, self._call("cuDeviceGet", device.index))
        memory = self.block_memory - STATIC
        kinds = self.driver.CUfunction_attribute
        dynamic = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", self.function, dynamic, memory)
        self._at_once: dict[Layout, int] = {}
        self.blocks = 1
        if self.clusters:
            non_portable = kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._call("cuFuncSetAttribute", self.function, non_portable, 1)
            self.blocks = max((n for n in BLOCKS[1:] if self._clusters_at_once(Layout(n, memory))), default=1)
        self.about = f"CUDA C++ for {architecture}, up to {self.blocks} blocks per pair"

    def fits(self, h: int, w: int) -> bool:
        """Return whether a scale of this size fits."""
        return bool(layouts(h, w, self.blocks, self.block_memory))

    def solve_scale(self, i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
        """Return the flow u (B, 2, H, W) float32, refined at one scale of the images i0, i1 (B, H, W) float32.

        The kernel runs asynchronously on torch's current stream. Raises FlowError for a size that does not fit.
        """
        n_pairs, h, w = i0.shape
        fitting = layouts(h, w, self.blocks, self.block_memory)
        if not fitting:
            raise FlowError(f"Images of {w}x{h} pixels are larger than a cluster of this GPU's thread blocks holds.")
        # The fewest blocks per pair that keep all processors busy: few blocks wait less for each other, many blocks
        # finish a single pair sooner. This was derived, not measured.
        busy = (layout for layout in fitting if n_pairs * layout.blocks >= self.processors)
        layout = next(busy, fitting[-1])
        planes, i0, flow = image_planes(i1), i0.contiguous(), u.clone(memory_format=torch.contiguous_format)
        queue = torch.zeros(1, dtype=torch.int32, device=u.device)  # how many pairs have been taken
        self._enter()
        config = self._config(layout, min(n_pairs, self._clusters_at_once(layout)))
        config.hStream = self.driver.CUstream(torch.cuda.current_stream(self.device).cuda_stream)
        pointers = [tensor.data_ptr() for tensor in (planes, i0, flow, queue)]
        types = (ctypes.c_void_p,) * 4 + (ctypes.c_int,) * 3 + (ctypes.c_float,)
        arguments = (*pointers, n_pairs, h, w, stop_bound(h, w)), types
        self._call("cuLaunchKernelEx", config, self.function, arguments, 0)
        return flow

    def _call(self, name: str, *arguments: Any) -> Any:
        return checked(getattr(self.driver, name)(*arguments))

    def _enter(self) -> None:
        """Make torch's CUDA context current in this thread; torch itself does this lazily, perhaps too late."""
        if int(self._call("cuCtxGetCurrent")) != int(self.context):
            self._call("cuCtxSetCurrent", self.context)

    def _clusters_at_once(self, layout: Layout) -> int:
        """Return how many clusters run at the same time; 0 if not even one fits."""
        if not self.clusters:
            return self.processors
        if layout not in self._at_once:
            code, number = self.driver.cuOccupancyMaxActiveClusters(self.function, self._config(layout, 1))
            self._at_once[layout] = 0 if int(code) else number  # more blocks than the GPU knows are an error
        return self._at_once[layout]

    def _config(self, layout: Layout, clusters: int) -> Any:
        config = self.driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = clusters * layout.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = THREADS, 1, 1
        config.sharedMemBytes = layout.memory
        if self.clusters:
            attribute = self.driver.CUlaunchAttribute()
            attribute.id = self.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = layout.blocks, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
        return config
