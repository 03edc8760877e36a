"""The ONNX front end: reads a file, refuses what it cannot represent exactly, and builds a Graph."""

from verifolio.onnx_import.check import import_graph
from verifolio.onnx_import.session import open_session

__all__ = ["import_graph", "open_session"]
