"""Log-mel spectra of sounds, as Whisper's encoders take them."""

from functools import cache
from typing import Any

import numpy as np

from relaxd.errors import InputError

RATE = 16_000
"""Samples a second."""
SECONDS = 30
"""The length of an encoder's input: shorter sounds are padded with silence."""
_WINDOW, _HOP = 400, 160
_FRAMES = RATE * SECONDS // _HOP
_LEAST = 1e-10
_DECADES = 8.0
"""The dynamic range below the loudest band; values below it are clamped."""

Array = np.ndarray[Any, Any]


def log_mel(samples: Any, bands: int = 80) -> Array:
    """float32 [1, bands, 3000] of a sound: floating-point samples in -1 to 1, one channel at RATE.

    Raises InputError for other arrays, and for sounds longer than SECONDS.
    """
    sound = _checked(np.asarray(samples))
    silence = RATE * SECONDS - len(sound)
    padded = np.pad(np.pad(sound, (0, silence)), _WINDOW // 2, mode="reflect")
    # Frames beyond these hold silence alone.
    frame_count = min(_FRAMES, (len(sound) + _WINDOW) // _HOP + 1)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][:frame_count]
    turns = 2 * np.pi * np.arange(_WINDOW) / _WINDOW
    power = np.abs(np.fft.rfft(frames * (0.5 - 0.5 * np.cos(turns)), axis=1)) ** 2
    spectra = np.full((bands, _FRAMES), np.log10(_LEAST))
    spectra[:, :frame_count] = np.log10(np.maximum(_bands(bands) @ power.T, _LEAST))
    spectra = np.maximum(spectra, spectra.max() - _DECADES)
    scaled: Array = ((spectra + 4.0) / 4.0).astype(np.float32)
    return scaled[None]


def _checked(sound: Array) -> Array:
    if sound.ndim != 1 or not np.issubdtype(sound.dtype, np.floating):
        raise InputError(
            f"a sound is {sound.dtype} {list(sound.shape)}, it must be floats [samples]",
            hint="mix channels to one; divide 16-bit samples by 32768",
        )
    if len(sound) > RATE * SECONDS:
        raise InputError(
            f"a sound has {len(sound) / RATE:.1f} s, an encoder takes {SECONDS} s at once",
            hint=f"split it at a pause; it must have {RATE} samples a second",
        )
    return sound.astype(np.float64)


@cache
def _bands(count: int) -> Array:
    """[count, frequencies]: how much each band takes of each frequency. Bands are triangles of
    equal area, evenly spaced on Slaney's scale, which is linear below 1000 Hz.
    """
    frequencies = np.linspace(0, RATE / 2, _WINDOW // 2 + 1)
    edges = _hertz(np.linspace(0, _mels(RATE / 2), count + 2))
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    heights = 2 / (edges[2:] - edges[:-2])
    return np.maximum(0, np.minimum(rising, falling)) * heights[:, None]


_KNEE, _PER_MEL = 15.0, 200 / 3
_STEP = np.log(6.4) / 27


def _mels(hertz: float) -> float:
    return float(_KNEE + np.log(hertz / (_KNEE * _PER_MEL)) / _STEP)


def _hertz(mels: Array) -> Array:
    return np.where(
        mels < _KNEE, mels * _PER_MEL, _KNEE * _PER_MEL * np.exp((mels - _KNEE) * _STEP)
    )
