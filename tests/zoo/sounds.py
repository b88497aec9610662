"""More models of sound, and one of decisions, each from a small config."""

from collections.abc import Iterator
from typing import Any

from tests.zoo.case import Case, sizes
from tests.zoo.recipes import WORDS, Recipe, cases

_WAVES = {"batch": "1:4", "samples": "400:8000"}
_WAVE_POINTS = sizes("batch samples", (1, 400), (2, 719), (3, 5003), (4, 400), (1, 8000))
_EXAMPLE = {"batch": 2, "samples": 4000}
_BATCHES = sizes("batch", (1,), (2,), (3,), (7,), (8,))
_LAYERS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_CONVOLVED = _LAYERS | {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}
_STATES = ("last_hidden_state",)


def _wave(model: str, outputs: tuple[str, ...] = ("logits",), **size: Any) -> Recipe:
    return Recipe(
        model, _CONVOLVED | size, {"input_values": "float32[batch,samples]"}, _EXAMPLE, outputs
    )


WAVES = {
    "hubert": _wave("HubertForCTC", feat_extract_norm="layer"),
    "wavlm": _wave("WavLMForCTC", num_buckets=32, max_bucket_distance=80),
    "unispeech_sat": _wave("UniSpeechSatForCTC"),
    "data2vec_audio": _wave("Data2VecAudioForCTC", conv_pos_kernel_size=5),
    "wav2vec2_conformer": _wave("Wav2Vec2ConformerForCTC", position_embeddings_type="relative"),
}
SEW = _wave(
    "SEWForCTC",
    conv_dim=(16,) * 7,
    conv_stride=(5, 2, 2, 2, 2, 2, 2),
    conv_kernel=(10, 3, 3, 3, 3, 2, 2),
)
SPEECH2TEXT = Recipe(
    "Speech2TextForConditionalGeneration",
    {
        "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "conv_channels": 32,
        "input_feat_per_channel": 20, "max_source_positions": 256, "max_target_positions": 64,
    },
    {"input_features": "float32[batch,frames,20]", "decoder_input_ids": "int64[batch,seq]"},
    {"batch": 2, "frames": 40, "seq": 5}, ("logits",), {"use_cache": False},
)  # fmt: skip
AST = Recipe(
    "ASTModel", _LAYERS | {"max_length": 128, "num_mel_bins": 32},
    {"input_values": "float32[batch,128,32]"}, {"batch": 2}, _STATES,
)  # fmt: skip
DECISION = Recipe(
    "DecisionTransformerModel",
    {"state_dim": 17, "act_dim": 4, "hidden_size": 32, "max_ep_len": WORDS, "n_layer": 2,
     "n_head": 4, "n_positions": 128},
    {
        "states": "float32[batch,seq,17]", "actions": "float32[batch,seq,4]",
        "rewards": "float32[batch,seq,1]", "returns_to_go": "float32[batch,seq,1]",
        "timesteps": "int64[batch,seq]", "attention_mask": "int64[batch,seq]",
    },
    {"batch": 2, "seq": 7}, ("state_preds", "action_preds", "return_preds"),
)  # fmt: skip


def _all() -> Iterator[Case]:
    for name, recipe in WAVES.items():
        yield from cases(name, recipe, _WAVES, _WAVE_POINTS)
    yield from cases(
        "sew",
        SEW,
        {"batch": "1:4", "samples": "1000:8000"},
        sizes("batch samples", (1, 1000), (2, 1999), (3, 5003), (4, 1000), (1, 8000)),
    )
    yield from cases("ast", AST, {"batch": "1:8"}, _BATCHES)
    yield from cases(
        "speech2text",
        SPEECH2TEXT,
        {"batch": "1:4", "frames": "8:200", "seq": "1:32"},
        sizes("batch frames seq", (1, 8, 1), (2, 33, 7), (3, 101, 31), (4, 8, 32), (1, 200, 32)),
    )
    yield from cases(
        "decision_transformer",
        DECISION,
        {"batch": "1:8", "seq": "1:40"},
        sizes("batch seq", (1, 1), (2, 2), (3, 13), (8, 40), (5, 31)),
    )


CASES = tuple(_all())
