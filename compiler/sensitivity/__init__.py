"""Measures which layers lose most by narrow operands, and keeps those in float32."""
