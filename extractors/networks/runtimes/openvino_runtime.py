"""Networks on OpenVINO: traced once from torch, kept on disk, compiled in less than half a second each time after."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.devices import fast_precision
from lstr.extractors.networks.runtimes.compiled_model import (
    CompiledModel,
    compile_model,
    load_core,
    load_openvino,
    multiplies_int8,
)
from lstr.extractors.networks.runtimes.conversion import NetworkJob, Store, check_features, exact_precision
from lstr.extractors.networks.runtimes.running_network import RunningNetwork
from lstr.extractors.recipe import INT8, LEAST, STEPS

NAME = "openvino"


class OpenVINONetwork(RunningNetwork):
    """A network of OpenVINO. Each calling thread has a request of its own, and computes in it alone."""

    runtime = NAME

    def __init__(self, job: NetworkJob, store: Store | None):
        self.job = job
        self.ov = load_openvino()
        self.core = load_core()
        self._model = self._read(store) or self._convert(store)
        self._compiled = CompiledModel(self._model, (*job.size, job.channels), self._hint(), job.threads)

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; by the numbers of images that were prepared; a rest is filled up to the smallest."""
        return self._compiled(images)

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images."""
        self._compiled.prepare(batches)

    def _hint(self) -> str:
        """Where the processor gains nothing by bfloat16, float32 is nearer to what it stands for, and faster."""
        return "bf16" if self.job.precision == "bf16" and fast_precision("cpu") == "bf16" else "f32"

    def _key(self) -> str:
        kernels = "whole" if self.job.precision == INT8 and multiplies_int8() else "rounded"
        return self.job.key(NAME, f"{self.ov.get_version()} {kernels}")

    def _read(self, store: Store | None) -> Any:
        """The model as it was kept; None where it was not, or cannot be read."""
        content = store.read(self._key()) if store is not None else None
        return None if content is None else self._from_bytes(content)

    def _from_bytes(self, content: bytes) -> Any:
        """The model of what `_parts` makes; None where it cannot be read."""
        try:
            length = int.from_bytes(content[:8], "little")
            weights = np.frombuffer(content, np.uint8, offset=8 + length)
            return self.core.read_model(bytes(content[8 : 8 + length]), self.ov.Tensor(weights))
        except (RuntimeError, ValueError):
            return None  # whoever reads converts it again

    def _convert(self, store: Store | None) -> Any:
        """The model traced from torch, checked against it, and kept. Raises what OpenVINO raises, and as the check."""
        import torch
        from openvino.frontend import FrontEndManager
        from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

        job = self.job
        with torch.no_grad():
            network, unchecked = job.pooled(exact_precision(job)), {"check_trace": False}  # features are checked below
            traced = TorchScriptPythonDecoder(network, example_input=job.example(), trace_kwargs=unchecked)
        frontend = FrontEndManager().load_by_framework("pytorch")
        self._model = frontend.convert(frontend.load(traced))
        if job.precision == INT8:
            self._quantise_weights()
        parts = self._parts()
        # as later runs will read it: the last bits of the traced one's features were others
        self._model = self._from_bytes(b"".join(parts))
        shape = (job.part.segments, *job.size, job.channels)
        exact = compile_model(self._model, shape, "f32", 1).create_infer_request()
        check_features(job, NAME, lambda images: exact.infer([images])[0])
        if store is not None:
            store.write(self._key(), parts)
        return self._model

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        """What `_read` reads: the length of the graph, the graph, the weights."""
        with TemporaryDirectory() as folder:
            graph, weights = Path(folder) / "graph.xml", Path(folder) / "weights.bin"
            self.ov.serialize(self._model, graph, weights)
            return graph.stat().st_size.to_bytes(8, "little"), graph.read_bytes(), weights.read_bytes()

    def _quantise_weights(self) -> None:
        """Give convolutions of rounded inputs their weights as whole numbers, by which OpenVINO knows int8 kernels."""
        from openvino import opset13
        from openvino.passes import ConstantFolding, Manager

        passes = Manager()
        passes.register_pass(ConstantFolding())  # the traced ranges are small computations
        passes.run_passes(self._model)
        if not multiplies_int8():
            return
        for node in self._model.get_ordered_ops():
            if node.get_type_name() not in ("Convolution", "GroupConvolution"):
                continue
            weights = node.input_value(1).get_node()
            values = weights.data if weights.get_type_name() == "Constant" else None
            if values is None or node.input_value(0).get_node().get_type_name() != "FakeQuantize":
                continue
            # (out, in, h, w), or (groups, out, in, h, w)
            inner = tuple(range(values.ndim - 3, values.ndim))
            steps = np.maximum(np.abs(values).max(inner, keepdims=True), LEAST * STEPS) / np.float32(STEPS)
            whole = np.round(values / steps).clip(-STEPS, STEPS).astype(np.int8)
            scaled = opset13.multiply(opset13.convert(opset13.constant(whole), "f32"), opset13.constant(steps))
            node.input(1).replace_source_output(scaled.output(0))
