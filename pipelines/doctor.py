"""What this machine has for each stage of the chain."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from lstr.errors import ExtractorError
from lstr.extractors.networks.manifest import read_manifest
from lstr.files.home import default_model, home

OPTIONAL = ("decord",)  # PyAV decodes without it
PACKAGES = (
    "torch",
    "torchvision",
    "decord",
    "av",
    "opencv-contrib-python",
    "numpy",
)
# What a small install has, which runs what `lstr export` wrote.
SMALL = ("onnxruntime", "av", "opencv-python-headless", "numpy")
# The networks that are tried: of the published features, and without torchvision, which takes seconds to import
BUILT = ("resnet50", "bninception")
LIBRARIES = "apt install libgl1 libglib2.0-0 libxcb1, which OpenCV wants; docs/how-to/install.md."
CPU_BUILD = "docs/how-to/install.md says how to install the build for processors, without NVIDIA's libraries."


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it is as it should be, what was found, and what to type if not."""

    what: str
    ok: bool | None
    """None where it is not there and need not be"""
    found: str
    hint: str = ""


def examine() -> list[Finding]:
    """Everything `lstr doctor` shows; a missing optional thing (GPU, checkpoint) is no failure."""
    findings = [Finding("python", True, f"{platform.python_version()}, {os.cpu_count()} cores")]
    if find_spec("torch") is None:
        what = "the small one: it runs what `lstr export` wrote, without PyTorch"
        findings += [Finding("install", True, what), *_packages(SMALL), _try("decoder", _decoder)]
        return [*findings, _checkpoint()]
    findings += _packages(PACKAGES)
    findings += [
        _try("decoder", _decoder),
        _try("optical flow", _flow),
        _try("networks", _networks),
        _gpu(),
        *_gpu_flow(),
    ]
    return [*findings, _checkpoint(), _weights()]


def _packages(names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        try:
            yield Finding(name, True, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            if name in OPTIONAL:
                yield Finding(name, None, "not installed; PyAV decodes every video")
            else:
                yield Finding(name, False, "not installed", f"pip install {name}")


def _try(what: str, check: Callable[[], tuple[str, str]]) -> Finding:
    """What a check found, and its hint; an error is a finding too."""
    try:
        return Finding(what, True, *check())
    except ExtractorError as error:
        return Finding(what, False, str(error), error.hint)
    except (ImportError, OSError, RuntimeError) as error:
        lacks = "cannot open shared object file" in str(error)  # of the system, where it has no desktop
        return Finding(what, False, str(error), LIBRARIES if lacks else "make clean install")


def _decoder() -> tuple[str, str]:
    import av

    from lstr.extractors.video.decoders import has_nvdec

    return f"PyAV {av.__version__}{', with NVDEC' if has_nvdec() else ''}", ""


def _flow() -> tuple[str, str]:
    import cv2

    from lstr.extractors.flow.workers import choose_backend

    if choose_backend() == "native":
        return "TV-L1 by the compiled kernel", ""
    compiler = "xcode-select --install" if sys.platform == "darwin" else "apt install gcc python3-dev"
    hint = f"the compiled kernel is many times faster: `{compiler}`, then `make clean install`."
    return f"TV-L1 of OpenCV {cv2.__version__}", hint


def _networks() -> tuple[str, str]:
    from lstr.extractors.networks.network import NETWORKS

    for name in BUILT:  # with memory and random numbers, .3 s; without them, on "meta", torch imports more for a second
        NETWORKS[name].build(3)
    return f"{' and '.join(BUILT)} can be built", ""


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("GPU", True, torch.cuda.get_device_name())
    if torch.version.cuda is None:
        return Finding("GPU", None, "none; networks run on the CPU")
    found = f"none; torch is the build for CUDA {torch.version.cuda}, of which {_unused() / 1e9:.1f} GB are unused here"
    return Finding("GPU", None, found, CPU_BUILD)


def notes() -> str:
    """Lines for who has just installed: torch for GPUs where there is none, no compiled kernel; empty elsewhere."""
    findings = (_gpu(), _try("optical flow", _flow))
    return "".join(f"note: {f.what}: {f.found}; {f.hint}\n" for f in findings if f.hint)


def _unused() -> int:
    """Bytes of NVIDIA's libraries and Triton beside torch."""
    names = (d.name for d in importlib.metadata.distributions() if d.name.startswith("nvidia-") or d.name == "triton")
    return sum(file.size or 0 for name in {*names} for file in importlib.metadata.files(name) or ())


def _gpu_flow() -> Iterator[Finding]:
    """What `--flow-backend cuda` would use, after it has solved a pair; nothing where there is no GPU."""
    import torch

    from lstr.extractors.flow.tvl1_solvers import open_solver

    if not torch.cuda.is_available():
        return
    what = "optical flow on the GPU"
    try:
        solver = open_solver("cuda")
    except ExtractorError as error:  # the processor computes it as well
        yield Finding(what, None, str(error), error.hint)
        return
    about = f"TV-L1 by the {solver.name} kernel ({solver.about}); one pair of 16x16 pixels solved"
    yield Finding(what, True, about, " ".join([*solver.warnings, *(error.hint for error in solver.lacking)]).strip())


def _checkpoint() -> Finding:
    if default := default_model():
        return Finding("default model", True, str(default))
    hint = "`lstr learn --make-default` leaves one; without it name one with `lstr detect -m`."
    return Finding("default model", None, f"none in {home()}", hint)


def _weights() -> Finding:
    wanted = [entry for entry in read_manifest() if entry.recipe == "kinetics"]
    lacking = [entry.name for entry in wanted if not entry.place.exists()]
    if not lacking:
        return Finding("published weights", True, ", ".join(entry.name for entry in wanted))
    return Finding(
        "published weights", None, f"not in {home()}: {', '.join(lacking)}", "`lstr weights fetch kinetics`."
    )
