"""An independent checker of certificates, in integer arithmetic. It imports nothing but numpy and onnx."""
