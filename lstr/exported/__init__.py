"""The step of a model as an ONNX graph: what it is made of, and how it runs without torch."""
