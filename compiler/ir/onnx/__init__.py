"""The ONNX front end: reads a ModelProto into the symbolic builder."""
