"""The command that exports a model of transformers to ONNX, for folders that are not built here."""

import re

from compiler.ir.folder.config import Config

_NAME = re.compile(r"[A-Za-z0-9]{1,80}")
_HALVES = {
    "CLIPModel": ("CLIPVisionModelWithProjection", "CLIPTextModelWithProjection"),
    "SiglipModel": ("SiglipVisionModel", "SiglipTextModel"),
}
"""Models of images and of texts: a library is made for each half."""
_START = 'python -c "import torch, transformers as T; '
_LOAD = "m = T.{}.from_pretrained('FOLDER').eval(); "
_END = 'dynamo=True)" (pip install torch transformers onnx onnxscript)'


def export_hint(config: Config) -> str:
    """The command to run, in which FOLDER stands for the folder's path."""
    names = config.get("architectures", [None])
    name = names[0] if isinstance(names, list) and names else None
    name = name if isinstance(name, str) and _NAME.fullmatch(name) else "AutoModel"
    if name.endswith("ForCausalLM"):
        return "export the model to ONNX, as with onnxruntime-genai's builder"
    if name in _HALVES:
        images, texts = _HALVES[name]
        return f"export each half: {_image_command(images)}; and {_text_command(texts)}"
    sees = "image_size" in config.settings or "num_channels" in config.settings
    return f"export it: {_image_command(name) if sees else _text_command(name)}"


def _image_command(name: str) -> str:
    return (
        f"{_START}{_LOAD.format(name)}s = m.config.image_size; torch.onnx.export(m, (), "
        "'model.onnx', kwargs={'pixel_values': torch.rand(2, m.config.num_channels, s, s)}, "
        f"dynamic_shapes={{'pixel_values': {{0: 'batch_size'}}}}, {_END}"
    )


def _text_command(name: str) -> str:
    return (
        f"{_START}{_LOAD.format(name)}x = torch.ones(2, 8, dtype=torch.int64); "
        "d = {0: 'batch_size', 1: 'sequence_length'}; torch.onnx.export(m, (), 'model.onnx', "
        "kwargs={'input_ids': x, 'attention_mask': x}, "
        f"dynamic_shapes={{'input_ids': d, 'attention_mask': d}}, {_END}"
    )
