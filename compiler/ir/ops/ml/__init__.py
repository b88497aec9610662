"""Operators of ai.onnx.ml: trees, support vector machines, class scores."""
