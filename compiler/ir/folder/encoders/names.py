"""Names of modules and tensors in the files of each kind of encoder, and of their heads.

`{body}` is what the files of models with a head put before the encoder's own names; parts with one
name are rows of one matrix, in the order of the table.
"""

from collections.abc import Mapping

from compiler.ir.encoders.design import Part

_BERT_LAYER = "{body}encoder.layer.{layer}."
BERT = {
    Part.TOKENS: "{body}embeddings.word_embeddings",
    Part.POSITIONS: "{body}embeddings.position_embeddings",
    Part.TYPES: "{body}embeddings.token_type_embeddings",
    Part.EMBEDDING_NORM: "{body}embeddings.LayerNorm",
    Part.EMBEDDING_MATRIX: "{body}embeddings_project",
    Part.QUERY: f"{_BERT_LAYER}attention.self.query",
    Part.KEY: f"{_BERT_LAYER}attention.self.key",
    Part.VALUE: f"{_BERT_LAYER}attention.self.value",
    Part.MIXED: f"{_BERT_LAYER}attention.output.dense",
    Part.MIX_NORM: f"{_BERT_LAYER}attention.output.LayerNorm",
    Part.UP: f"{_BERT_LAYER}intermediate.dense",
    Part.DOWN: f"{_BERT_LAYER}output.dense",
    Part.FEED_NORM: f"{_BERT_LAYER}output.LayerNorm",
    Part.POOLER: "{body}pooler.dense",
}
MPNET: Mapping[Part, str] = BERT | {
    Part.DISTANCE_BIAS: "{body}encoder.relative_attention_bias",
    Part.QUERY: f"{_BERT_LAYER}attention.attn.q",
    Part.KEY: f"{_BERT_LAYER}attention.attn.k",
    Part.VALUE: f"{_BERT_LAYER}attention.attn.v",
    Part.MIXED: f"{_BERT_LAYER}attention.attn.o",
    Part.MIX_NORM: f"{_BERT_LAYER}attention.LayerNorm",
}
_DISTILBERT_LAYER = "{body}transformer.layer.{layer}."
DISTILBERT: Mapping[Part, str] = {
    Part.TOKENS: "{body}embeddings.word_embeddings",
    Part.POSITIONS: "{body}embeddings.position_embeddings",
    Part.EMBEDDING_NORM: "{body}embeddings.LayerNorm",
    Part.QUERY: f"{_DISTILBERT_LAYER}attention.q_lin",
    Part.KEY: f"{_DISTILBERT_LAYER}attention.k_lin",
    Part.VALUE: f"{_DISTILBERT_LAYER}attention.v_lin",
    Part.MIXED: f"{_DISTILBERT_LAYER}attention.out_lin",
    Part.MIX_NORM: f"{_DISTILBERT_LAYER}sa_layer_norm",
    Part.UP: f"{_DISTILBERT_LAYER}ffn.lin1",
    Part.DOWN: f"{_DISTILBERT_LAYER}ffn.lin2",
    Part.FEED_NORM: f"{_DISTILBERT_LAYER}output_layer_norm",
}
_MODERNBERT_LAYER = "{body}layers.{layer}."
MODERNBERT: Mapping[Part, str] = {
    Part.TOKENS: "{body}embeddings.tok_embeddings",
    Part.EMBEDDING_NORM: "{body}embeddings.norm",
    Part.LAST_NORM: "{body}final_norm",
    Part.MIX_NORM: f"{_MODERNBERT_LAYER}attn_norm",
    **dict.fromkeys((Part.QUERY, Part.KEY, Part.VALUE), f"{_MODERNBERT_LAYER}attn.Wqkv"),
    Part.MIXED: f"{_MODERNBERT_LAYER}attn.Wo",
    Part.FEED_NORM: f"{_MODERNBERT_LAYER}mlp_norm",
    **dict.fromkeys((Part.UP, Part.GATE), f"{_MODERNBERT_LAYER}mlp.Wi"),
    Part.DOWN: f"{_MODERNBERT_LAYER}mlp.Wo",
}
CLASSIFIER = {Part.LOGITS: "classifier"}
ANSWERS = {Part.LOGITS: "qa_outputs"}
BERT_PAIR = {Part.HEAD: "{body}pooler.dense", Part.LOGITS: "classifier"}
BERT_WORDS = {
    Part.HEAD: "cls.predictions.transform.dense",
    Part.HEAD_NORM: "cls.predictions.transform.LayerNorm",
    Part.LOGITS: "cls.predictions.bias",
}
ROBERTA_CLASSES = {Part.HEAD: "classifier.dense", Part.LOGITS: "classifier.out_proj"}
ROBERTA_WORDS = {
    Part.HEAD: "lm_head.dense",
    Part.HEAD_NORM: "lm_head.layer_norm",
    Part.LOGITS: "lm_head.bias",
}
DISTILBERT_CLASSES = {Part.HEAD: "pre_classifier", Part.LOGITS: "classifier"}
DISTILBERT_WORDS = {
    Part.HEAD: "vocab_transform",
    Part.HEAD_NORM: "vocab_layer_norm",
    Part.LOGITS: "vocab_projector.bias",
}
_MODERNBERT_HEAD = {Part.HEAD: "head.dense", Part.HEAD_NORM: "head.norm"}
MODERNBERT_CLASSES = _MODERNBERT_HEAD | {Part.LOGITS: "classifier"}
MODERNBERT_WORDS = _MODERNBERT_HEAD | {Part.LOGITS: "decoder.bias"}
UNUSED = (
    "cls.",
    "classifier.",
    "lm_head.",
    "qa_outputs.",
    "pre_classifier.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "head.",
    "decoder.",
    "pooler.",
    "discriminator_predictions.",
    "generator_predictions.",
)
"""Beginnings of names of heads, which a file may have beside the one that is used."""
UNREAD_ENDINGS = (".position_ids", ".token_type_ids", ".mask_token", ".rotary_emb.inv_freq")
"""Ends of names of what follows from the settings, or only training uses."""
