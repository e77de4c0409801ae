"""Which runtime computes a network: torch, which defines it, or one that computes the same faster on a processor."""

import importlib.util

from lstr.errors import NetworkRuntimeError, first_line
from lstr.extractors.devices import keep_float32_exact
from lstr.extractors.networks.conversion import NetworkJob, Store
from lstr.extractors.networks.mmaction import quiet
from lstr.extractors.networks.running_network import RunningNetwork

RUNTIMES = ("torch", "openvino", "onnxruntime")
# Runtimes that run the networks of an exported model
GRAPH_RUNTIMES = ("onnxruntime", "openvino")
AUTO = "auto"
INSTALL = {"openvino": "pip install openvino", "onnxruntime": 'pip install "lstr-video[onnxruntime]"'}


def is_installed(runtime: str) -> bool:
    """Whether a runtime can be imported, without importing it."""
    return runtime == "torch" or importlib.util.find_spec(runtime) is not None


def choose_runtime(wanted: str, device: str, fastest: str | None = None) -> str:
    """The runtime for `wanted`, which may be `auto`: `fastest` where that is known, else OpenVINO, else torch.

    On a GPU, and where none is installed, `auto` is torch. Raises NetworkRuntimeError for one that is not installed, or
    that does not compute on this device.
    """
    if wanted == AUTO:
        best = fastest or "openvino"
        return best if device == "cpu" and is_installed(best) else "torch"
    if wanted not in RUNTIMES:
        raise NetworkRuntimeError(f"There is no runtime {wanted!r}.", f"choose one of: {', '.join((AUTO, *RUNTIMES))}.")
    if not is_installed(wanted):
        raise NetworkRuntimeError(
            f"The runtime {wanted} is not installed.", f"{INSTALL[wanted]}, or --set runtime=auto."
        )
    if wanted != "torch" and device != "cpu":
        raise NetworkRuntimeError(f"The runtime {wanted} computes on the CPU, not on {device}.", "set LSTR_DEVICE=cpu.")
    return wanted


def open_graph(graph: bytes, stream: str, runtime: str = AUTO, threads: int = 1) -> RunningNetwork:
    """The network of a stream of an exported model, from its graph, which was checked, for so many calling threads.

    `auto` is ONNX Runtime, which runs the rest of such a model. Raises NetworkRuntimeError for a runtime that runs no
    graphs or is not installed, and where it cannot run this one.
    """
    if runtime not in (AUTO, *GRAPH_RUNTIMES):
        raise NetworkRuntimeError(
            f"The networks of an exported model run on {' and '.join(GRAPH_RUNTIMES)}, not on {runtime}.",
            "leave the runtime out, or use the model file that it was exported from.",
        )
    if runtime == "openvino":
        choose_runtime(runtime, "cpu")
        from lstr.extractors.networks.openvino_runtime import ExportedOpenVINONetwork

        return ExportedOpenVINONetwork(graph, stream, threads)
    from lstr.extractors.networks.onnx_runtime import ExportedNetwork

    return ExportedNetwork(graph, stream)


def open_network(job: NetworkJob, runtime: str, store: Store | None) -> RunningNetwork:
    """A network on a runtime that `choose_runtime` has chosen.

    Raises NetworkRuntimeError where the runtime cannot be loaded, cannot convert the network, or makes other features.
    """
    if runtime == "torch":
        from lstr.extractors import lanes
        from lstr.extractors.networks.torch_runtime import TorchNetwork

        if job.device != "cpu" and job.precision == "float32":
            keep_float32_exact()
        pooled = job.pooled()
        return TorchNetwork(pooled, lanes.open_lane(job.device), (*job.size, job.channels))
    try:
        with quiet():
            if runtime == "openvino":
                from lstr.extractors.networks.openvino_runtime import OpenVINONetwork

                return OpenVINONetwork(job, store)
            from lstr.extractors.networks.onnx_runtime import OnnxNetwork

            return OnnxNetwork(job, store)
    except NetworkRuntimeError:
        raise
    except Exception as error:  # a runtime fails in as many ways as there are layers
        raise NetworkRuntimeError(
            f"{runtime} cannot run the network {job.part.network} ({first_line(error)}).",
            "leave it to torch: --set runtime=torch.",
        ) from error
