"""Text of speech: sounds through an encoder, then tokens from a decoder that keeps its state."""

from relaxd.speech.features import RATE, SECONDS, log_mel
from relaxd.speech.whisper import Transcript, Whisper

__all__ = ["RATE", "SECONDS", "Transcript", "Whisper", "log_mel"]
