"""All kernels that are measured: every family at shapes of real models."""

from collections.abc import Iterator

from benchmarks.kernels import images, matmuls, rows
from benchmarks.kernels.case import STREAMED_BYTES, Case

ROWS = (1, 7, 16, 100, 128, 512)
"""Rows of a matmul: tokens of a decode step, of short and of long texts."""


def cases() -> Iterator[Case]:
    """All of them, family by family."""
    yield from _matmul_cases()
    yield from _quantized_cases()
    yield from _image_cases()
    yield from _sequence_cases()
    yield from _move_cases()


def more_cases() -> Iterator[Case]:
    """Those of tuning constants on which no case of the table depends."""
    # A step of Qwen2.5-0.5B behind a thousand tokens.
    yield matmuls.grouped_attention(64, 14, 2, 1, 1000)
    # A classifier, most of whose last panel is empty, and boxes of a detector.
    yield matmuls.matmul(128, 384, 100)
    yield rows.scale_rows(16, 1000, 4)
    yield images.max_pool_row(64, 1000)


def _matmul_cases() -> Iterator[Case]:
    # MiniLM, BERT, and the heads of a small Transformer.
    sides = ((384, 384), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768))
    for depth, columns in (*sides, (512, 512), (512, 30000)):
        for count in ROWS:
            yield matmuls.matmul(count, depth, columns)
    # A step of GPT-2, whose weights no cache keeps.
    yield matmuls.matmul(1, 768, 3072, STREAMED_BYTES)
    yield matmuls.matmul(16, 768, 3072, STREAMED_BYTES)
    yield matmuls.matmul_dynamic(12, 128, 64, 128)
    yield matmuls.matmul_dynamic(1, 512, 512, 512)
    yield matmuls.matmul_dynamic(12, 1, 64, 128)


def _quantized_cases() -> Iterator[Case]:
    for count in (1, 16, 128, 512):
        yield matmuls.matmul_bfloat16(count, 768, 3072)
    for count in (1, 16, 128):
        yield matmuls.int8_matmul(count, 768, 3072)
        yield matmuls.int8_matmul(count, 3072, 768)
    # ResNet-50, quantized.
    yield images.int8_convolution(64, 64, 3, 56)
    yield images.int8_convolution(256, 64, 1, 56)
    # Qwen2.5-0.5B.
    for count in (1, 16, 128):
        yield matmuls.block_matmul(count, 896, 4864)
        yield matmuls.block_matmul(count, 896, 4864, quantized_rows=True)
    yield matmuls.block_matmul(1, 896, 4864, bits=8)


def _image_cases() -> Iterator[Case]:
    for channels, size in ((64, 56), (128, 28), (256, 14), (96, 40)):
        yield images.convolution("winograd", channels, channels, 3, size)
    yield images.convolution("matmul", 3, 64, 7, 224, stride=2)
    yield images.convolution("matmul", 256, 64, 1, 56)
    yield images.convolution("matmul", 64, 256, 1, 56)
    yield images.convolution("matmul", 512, 512, 3, 7)
    yield images.convolution("matmul", 128, 128, 3, 56, stride=2)
    # MobileNetV2's thin layers.
    yield images.convolution("matmul", 16, 96, 1, 112)
    yield images.convolution("matmul", 24, 144, 1, 56)
    yield images.convolution("grouped_conv", 128, 128, 3, 28, groups=4)
    # ResNeXt-50 and a net for video.
    yield images.convolution("grouped_conv", 256, 256, 3, 28, groups=32)
    yield images.volumes(64, 4, 14)
    # Heads with one number for each position of an image.
    yield images.convolution("single_conv", 8, 1, 5, 224)
    yield images.convolution("single_conv", 64, 1, 3, 56)
    yield images.convolution("pooling", 96, 96, 3, 56, groups=96)
    yield images.convolution("pooling", 96, 96, 5, 28, groups=96)
    yield images.convolution("pooling", 576, 576, 3, 14, groups=576)
    yield images.max_pool(64, 112)
    yield images.max_pool(64, 112, batch=16)


def _sequence_cases() -> Iterator[Case]:
    for depth, heads, batch, count in ((64, 12, 1, 128), (64, 12, 8, 100), (32, 12, 1, 500)):
        yield matmuls.attention(depth, heads, batch, count, count)
    # A step of GPT-2 behind a thousand tokens.
    yield matmuls.attention(64, 12, 1, 1, 1000)
    for kind in ("LSTM", "GRU"):
        for batch in (1, 8, 16):
            yield matmuls.recurrence(kind, 256, batch, 50)


def _move_cases() -> Iterator[Case]:
    yield rows.softmax(1536, 128)
    yield rows.softmax(1, 50257)
    yield rows.layer_norm(128, 768)
    yield rows.gelu(128, 3072)
    yield rows.residual(1, 256, 56)
    yield rows.residual(16, 256, 56)
    yield rows.mean(1, 7, 2048)
    yield rows.mean(1, 56, 144)
    yield rows.mean(16, 56, 256)
    yield rows.transpose(1, 64, 56)
    yield rows.transpose(16, 64, 112)
    yield rows.copy(8, 128, 768)
    yield rows.copy(64, 128, 3072)
