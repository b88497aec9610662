"""ONNX operators refused by name, most of them since their values are not tensors of numbers."""

from compiler.ir.onnx.registry import refuse

STRINGS = "strings are not supported: do text processing before the model"
TEXT = "counting n-grams is not supported: do text processing before the model"
MAPS = "maps are not supported: a compiled model's values are tensors"
TRAINING = "gradients are not supported: export the graph with the backward pass in it"
CODECS = "decoding images is not supported: decode before the model"

refuse("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", why=STRINGS)
refuse("TfIdfVectorizer", why=TEXT)
refuse("ImageDecoder", why=CODECS)
refuse("Gradient", domain="ai.onnx.preview.training", why=TRAINING)
refuse("CategoryMapper", "DictVectorizer", "CastMap", domain="ai.onnx.ml", why=MAPS)
