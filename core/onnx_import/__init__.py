"""The ONNX front end: reads a file, refuses what it cannot represent exactly, and builds a Graph."""
