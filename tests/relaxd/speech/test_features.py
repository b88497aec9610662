"""Log-mel spectra beside those of transformers' extractor."""

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from relaxd.errors import InputError
from relaxd.speech import RATE, SECONDS, log_mel


def sound(samples: int) -> np.ndarray:
    draw, index = np.random.default_rng(samples), np.arange(samples) / RATE
    tone = np.sin(2 * np.pi * 440 * index) * np.exp(-index)
    return (0.3 * tone + 0.01 * draw.standard_normal(samples)).astype(np.float32)


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("samples", [1, 159, 160, 401, 7919, RATE * SECONDS - 7, RATE * SECONDS])
def test_spectra_are_those_of_transformers(samples: int, bands: int) -> None:
    arguments = sound(samples)
    extractor = WhisperFeatureExtractor(feature_size=bands)
    want = extractor(arguments, sampling_rate=RATE, return_tensors="np").input_features
    result = log_mel(arguments, bands)
    assert (result.shape, result.dtype) == ((1, bands, 3000), np.dtype(np.float32))
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-4)


def test_silence() -> None:
    np.testing.assert_array_equal(log_mel(np.zeros(0)), np.full((1, 80, 3000), -1.5, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (np.zeros(7, np.int16), "must be floats"),
        (np.zeros((2, 7)), "must be floats"),
        (np.zeros(RATE * 31), "has 31.0 s, an encoder takes 30 s"),
    ],
)
def test_what_is_no_sound(arguments: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        log_mel(arguments)
    assert caught.value.hint
