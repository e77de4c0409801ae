"""Where networks run: the processor, or a GPU that torch can use."""

from threading import Lock

import torch

from lstr.extractors.errors import DeviceError

READERS = 3  # videos at once beside a GPU, which computes sooner than one is read; not measured
CAPTURING = Lock()
"""Of a process, while it captures a CUDA graph: PyTorch captures one at a time."""

LEAVE_OUT = "leave out the device to run on the processor; `lstr doctor` shows what this machine has."


def default_device() -> str:
    """`cuda` on a machine with a GPU, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_device(wanted: str | None) -> str:
    """A torch device that is there: `wanted` (cpu, cuda or cuda:N), or the default one.

    Raises DeviceError for one that this machine or this build of torch lacks, and for a name that is none of them.
    """
    if wanted is None:
        return default_device()
    if wanted == "cpu":
        return wanted
    kind, _, number = wanted.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()) or wanted.endswith(":"):
        raise DeviceError(f"{wanted!r} is no device that networks run on here.", "choose cpu, cuda or cuda:N.")
    if not torch.version.cuda and not torch.version.hip:
        raise DeviceError(
            f"There is no device {wanted}: the torch installed here is a build for the processor alone.",
            f"{LEAVE_OUT} https://pytorch.org/get-started has the builds for GPUs.",
        )
    if not torch.cuda.is_available():
        raise DeviceError(f"There is no device {wanted}: torch finds no GPU that it can use.", LEAVE_OUT)
    if number and int(number) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise DeviceError(f"There is no device {wanted}: this machine has {count}, counted from 0.", LEAVE_OUT)
    return wanted


def videos_at_once(device: str) -> int:
    """How many videos a process reads at once where its networks are on a device."""
    return READERS if device.startswith("cuda") else 1


def keep_float32_exact() -> None:
    """Let this process compute float32 on a GPU as a processor does: by default cuDNN rounds its products to TF32."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def release_memory() -> None:
    """Give back what torch holds of a GPU and does not use, for other processes; nothing where none was used."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
