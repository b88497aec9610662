"""Sliding windows over images: pooling and depthwise convolution."""
