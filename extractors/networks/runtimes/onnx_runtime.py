"""Networks on ONNX Runtime: exported once from torch, kept on disk, loaded each time after.

It multiplies no bfloat16 on a processor, so a bf16 network is computed in float32 here.
"""

from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from lstr.extractors.networks.runtimes.conversion import (
    FEATURES,
    IMAGES,
    NetworkJob,
    Store,
    check_features,
    exact_precision,
    onnx_of,
)
from lstr.extractors.networks.runtimes.running_network import RunningNetwork

NAME = "onnxruntime"
OPSET = 17


class OnnxNetwork(RunningNetwork):
    """A network of ONNX Runtime. Each calling thread computes alone."""

    runtime = NAME

    def __init__(self, job: NetworkJob, store: Store | None):
        key = job.key(NAME, onnxruntime.__version__)
        kept = store.read(key) if store is not None else None
        if kept is not None:
            self._session = open_session(kept)
            return
        exported = onnx_of(job.pooled(exact_precision(job)), job.example(), "n", OPSET)
        self._session = open_session(exported)
        check_features(job, NAME, self)
        if store is not None:
            store.write(key, [exported])

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self._session.run([FEATURES], {IMAGES: np.ascontiguousarray(images)})[0]


def open_session(content: bytes) -> Any:
    """A graph in ONNX Runtime, by which each calling thread computes alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    # of an int8 network it would round the weights, which are round already, once more, and by fewer steps
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
