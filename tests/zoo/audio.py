"""Models and transforms of torchaudio, small and without trained weights."""

from collections.abc import Iterator
from typing import Any

from tests.zoo.case import Case, sizes
from tests.zoo.recipes import Recipe, cases

_WAVES = {"batch": "1:4", "samples": "800:8000"}
_WAVE_POINTS = sizes("batch samples", (1, 800), (2, 1601), (3, 5003), (4, 800), (1, 8000))
_STRIDES = {"batch": "1:4", "samples": "800:8000%8"}
_STRIDE_POINTS = sizes("batch samples", (1, 800), (2, 1608), (3, 5000), (4, 800), (1, 8000))
_FRAMES = {"batch": "1:4", "frames": "64:300"}
_FRAME_POINTS = sizes("batch frames", (1, 64), (2, 101), (3, 173), (4, 64), (1, 300))
_BATCHES = sizes("batch", (1,), (2,), (3,), (7,), (8,))
_EXTRACTOR = [(16, 10, 5), *[(16, 3, 2)] * 4, *[(16, 2, 2)] * 2]
_ENCODER: dict[str, Any] = {
    "extractor_mode": "group_norm", "extractor_conv_layer_config": _EXTRACTOR,
    "extractor_conv_bias": False, "encoder_embed_dim": 32, "encoder_projection_dropout": 0.0,
    "encoder_pos_conv_kernel": 16, "encoder_pos_conv_groups": 4, "encoder_num_layers": 2,
    "encoder_num_heads": 4, "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 64,
    "encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_norm_first": False,
    "encoder_layer_drop": 0.0, "aux_num_out": 32,
}  # fmt: skip


def _audio(model: str, inputs: dict[str, str], example: dict[str, int], **size: Any) -> Recipe:
    return Recipe(model, size, inputs, example, package="torchaudio")


def _wave(model: str, name: str = "waveform", axes: str = "batch,samples", **size: Any) -> Recipe:
    return _audio(model, {name: f"float32[{axes}]"}, {"batch": 2, "samples": 4000}, **size)


WAVES = {
    "audio_wav2vec2": _wave("models.wav2vec2_model", "waveforms", **_ENCODER),
    "audio_wavlm": _wave(
        "models.wavlm_model", "waveforms", **_ENCODER, encoder_num_buckets=32,
        encoder_max_distance=80,
    ),
    "audio_mel": _wave("transforms.MelSpectrogram", n_fft=400, n_mels=40),
    "audio_mfcc": _wave(
        "transforms.MFCC", n_mfcc=13, melkwargs={"n_fft": 400, "n_mels": 40, "hop_length": 160}
    ),
}  # fmt: skip
STRIDES = {
    "audio_conv_tasnet": _wave(
        "models.ConvTasNet", "input", "batch,1,samples", enc_num_feats=32, msk_num_feats=16,
        msk_num_hidden_feats=32, msk_num_layers=3, msk_num_stacks=2,
    ),
}  # fmt: skip
FRAMES = {
    "audio_wav2letter": _audio(
        "models.Wav2Letter", {"x": "float32[batch,20,frames]"}, {"batch": 2, "frames": 96},
        num_classes=11, input_type="mfcc", num_features=20,
    ),
    "audio_deepspeech": _audio(
        "models.DeepSpeech", {"x": "float32[batch,1,frames,20]"}, {"batch": 2, "frames": 96},
        n_feature=20, n_hidden=32, n_class=11,
    ),
}  # fmt: skip
FIXED = {
    "audio_wavernn": _audio(
        "models.WaveRNN",
        {"waveform": "float32[batch,1,72]", "specgram": "float32[batch,1,20,10]"}, {"batch": 2},
        upsample_scales=[2, 2, 3], n_classes=16, hop_length=12, n_res_block=2, n_rnn=32, n_fc=32,
        kernel_size=5, n_freq=20, n_hidden=16, n_output=16,
    ),
}  # fmt: skip


def _all() -> Iterator[Case]:
    for name, recipe in WAVES.items():
        yield from cases(name, recipe, _WAVES, _WAVE_POINTS)
    for name, recipe in STRIDES.items():
        yield from cases(name, recipe, _STRIDES, _STRIDE_POINTS)
    for name, recipe in FRAMES.items():
        yield from cases(name, recipe, _FRAMES, _FRAME_POINTS)
    for name, recipe in FIXED.items():
        yield from cases(name, recipe, {"batch": "1:8"}, _BATCHES)


CASES = tuple(_all())
