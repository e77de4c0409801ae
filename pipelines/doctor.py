"""Check the software and hardware of this machine for each stage."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from lstr.errors import ExtractorError
from lstr.extractors.networks.manifest import read_manifest
from lstr.files.home import default_model, home

PACKAGES = "torch torchvision av opencv-contrib-python numpy".split()
# Packages of the small installation, which runs files of `lstr export`.
SMALL_PACKAGES = "onnxruntime av opencv-python-headless numpy".split()
# The networks of the published features; torchvision's networks would add seconds of imports.
BUILT_NETWORKS = ("resnet50", "bninception")
LIBRARIES = "apt install libgl1 libglib2.0-0 libxcb1, which OpenCV needs; docs/how-to/install.md."
CPU_BUILD = "see docs/how-to/install.md to install the CPU-only build, without NVIDIA's libraries."


class Finding(NamedTuple):
    """The result of one check; `ok` is None for a missing optional part, `hint` is a command or an instruction."""

    what: str
    ok: bool | None
    found: str
    hint: str = ""


def examine() -> list[Finding]:
    """Return all findings of `lstr doctor`; a missing optional part (GPU, model, weights) is not a failure."""
    findings = [Finding("python", True, f"{platform.python_version()}, {os.cpu_count()} cores")]
    is_small = find_spec("torch") is None
    if is_small:
        findings.append(Finding("install", True, "small: runs exported models, without PyTorch"))
    for name in SMALL_PACKAGES if is_small else PACKAGES:
        try:
            findings.append(Finding(name, True, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(name, False, "not installed", f"pip install {name}"))
    if not is_small:
        findings += [
            check("optical flow", check_flow),
            check("networks", check_networks),
            gpu := check_gpu(),
        ]
        if gpu.ok:
            # optional, because the CPU can compute flow too
            findings.append(check("optical flow on the GPU", check_gpu_flow, failed=None))
    # Optional parts; if they are missing, this is not a failure
    if default := default_model():
        findings.append(Finding("default model", True, str(default)))
    else:
        hint = "make one with `lstr learn --make-default`, or name a model with `lstr detect -m`."
        findings.append(Finding("default model", None, f"none in {home()}", hint))
    if not is_small:
        missing = [e.name for e in read_manifest() if e.recipe == "kinetics" and not e.place.exists()]
        found = f"not in {home()}: {', '.join(missing)}" if missing else "kinetics"
        hint = "`lstr weights fetch kinetics`." if missing else ""
        findings.append(Finding("published weights", None if missing else True, found, hint))
    return findings


def check(what: str, find: Callable[[], tuple[str, str]], failed: bool | None = False) -> Finding:
    """Return the result and the hint of a function as a finding; `failed` is its `ok` after an error."""
    try:
        return Finding(what, True, *find())
    except ExtractorError as error:
        return Finding(what, failed, str(error), error.hint)
    except (ImportError, OSError, RuntimeError) as error:
        # servers without a desktop lack shared libraries that OpenCV needs
        lacks = "cannot open shared object file" in str(error)
        return Finding(what, failed, str(error), LIBRARIES if lacks else "make clean install")


def check_flow() -> tuple[str, str]:
    """Return the backend of TV-L1 on this machine, and a hint for a faster one."""
    import cv2

    from lstr.extractors.flow.workers import choose_backend

    if choose_backend() == "native":
        return "TV-L1 by the compiled kernel", ""
    compiler = "xcode-select --install" if sys.platform == "darwin" else "apt install gcc python3-dev"
    hint = f"the compiled kernel is many times faster: `{compiler}`, then `make clean install`."
    return f"TV-L1 of OpenCV {cv2.__version__}", hint


def check_networks() -> tuple[str, str]:
    """Build the networks of the published features."""
    from lstr.extractors.networks.network import NETWORKS

    for name in BUILT_NETWORKS:  # takes 0.3 s; for the device "meta" torch would import more, which takes a second
        NETWORKS[name].build(3)
    return f"{' and '.join(BUILT_NETWORKS)} can be built", ""


def check_gpu() -> Finding:
    """Return the GPU; warn if torch is a GPU build on a machine without a GPU."""
    import torch

    if torch.cuda.is_available():
        return Finding("GPU", True, torch.cuda.get_device_name())
    if torch.version.cuda is None:
        return Finding("GPU", None, "none; networks run on the CPU")
    found = f"none; torch is the build for CUDA {torch.version.cuda}, several GB larger than the CPU build"
    return Finding("GPU", None, found, CPU_BUILD)


def check_gpu_flow() -> tuple[str, str]:
    """Return the kernel that computes flow on the GPU, after it has solved a pair, and hints for a faster one."""
    from lstr.extractors.flow.tvl1_gpu import open_solver

    solver = open_solver("cuda")
    about = f"TV-L1 by the {solver.name} kernel ({solver.about}); one pair of 16x16 pixels solved"
    return about, " ".join([*solver.warnings, *(error.hint for error in solver.failures)]).strip()


def notes() -> str:
    """Return warnings to print after an installation: a GPU build of torch without a GPU, or no compiled kernel."""
    findings = (check_gpu(), check("optical flow", check_flow))
    return "".join(f"note: {f.what}: {f.found}; {f.hint}\n" for f in findings if f.hint)
