"""Fourier transforms of real signals against torch, the axes symbolic."""

import pytest
import torch

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import arguments, check, draw, import_module, trace

SIGNAL = ("float32", "n,n+20")


def test_short_time_transform() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        centred = torch.stft(x, 8, 4, 6, torch.hann_window(6), return_complex=True)
        plain = torch.stft(x, 8, normalized=True, center=False, return_complex=True)
        return (
            centred.abs() ** 2,
            centred.real,
            torch.view_as_real(plain),
            plain.angle().cos(),
            torch.hamming_window(5, False),
        )

    check(of, SIGNAL)


def test_complex_tensors_are_rearranged() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.stft(x, 8, 4, return_complex=True)
        shaped = spectrum.reshape(x.shape[0], 1, *spectrum.shape[-2:])
        return shaped.abs(), spectrum.transpose(1, 2)[:, 1:].contiguous().imag

    check(of, SIGNAL)


def test_real_transforms() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfft(x)
        return (
            spectrum.abs(),
            torch.fft.irfft(spectrum, x.size(1)),
            torch.fft.rfft(x, 6, 0, norm="ortho").imag,
            torch.fft.irfft(torch.fft.rfft(x, 8)),
        )

    check(of, SIGNAL)


def test_complex_transforms() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.fftn(x)
        shifted = torch.fft.fft(x, 5, 0, norm="forward")
        return (
            spectrum.real,
            spectrum.imag,
            torch.fft.ifftn(spectrum, norm="backward").real,
            torch.view_as_real(torch.fft.fft2(x, (4, -1), norm="ortho")),
            torch.fft.ifft(shifted, norm="ortho").imag,
            torch.view_as_real(torch.fft.ifft2(x)),
            torch.fft.fftn(x, (9,)).real,
            torch.fft.ifft(spectrum, 7, -2, norm="forward").abs(),
        )

    check(of, SIGNAL)


def test_complex_arithmetic_is_refused() -> None:
    module = trace(lambda x: (torch.fft.rfft(x) * 2).abs(), draw(SIGNAL, 3))
    with pytest.raises(ImportFailed) as caught:
        import_module(module, {arguments(module)[0]: "float32[n,8]"})
    assert caught.value.code == "import.unsupported_form"
