"""Sounds of sentences that espeak-ng says."""

import subprocess
import wave
from pathlib import Path
from typing import Any

import numpy as np

SENTENCES = {
    "river": ("en-gb", 150, "Yesterday we walked along the river and counted seven boats."),
    "fox": ("en-us", 140, "The quick brown fox jumps over the lazy dog."),
    "compiler": ("en-us", 140, "A compiler turns one model into a library for every machine."),
}
"""By name, a voice, words a minute, and what is said."""


def spoken(name: str, folder: Path) -> np.ndarray[Any, Any]:
    """float32 samples, 16,000 a second."""
    voice, speed, text = SENTENCES[name]
    path = folder / f"{name}.wav"
    subprocess.run(
        ["espeak-ng", "-v", voice, "-s", str(speed), "-w", path, text], check=True, timeout=60
    )
    with wave.open(str(path)) as file:
        rate, count = file.getframerate(), file.getnframes()
        sound = np.frombuffer(file.readframes(count), np.int16) / 32768
    # The frequencies below 8 kHz alone, as so many samples.
    wanted = round(count * 16000 / rate)
    spectrum = np.fft.rfft(sound)[: wanted // 2 + 1]
    return (np.fft.irfft(spectrum, wanted) * wanted / count).astype(np.float32)
