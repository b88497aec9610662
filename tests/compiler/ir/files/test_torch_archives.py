"""Archives of torch.save: each is named, with the way to a model that compiles."""

import zipfile
from pathlib import Path

import pytest

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model

STATE = b"\x80\x02ccollections\nOrderedDict\n)Rctorch\nFloatStorage\n0."
MODULE = b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81."


@pytest.mark.parametrize(
    ("content", "what", "way"),
    [
        (STATE, "a state dict: weights, without the module", "m.load_state_dict(torch.load("),
        (MODULE, r"object of 'torch\.nn\.modules\.linear\.Linear'", "weights_only=False"),
        (b"\x80\x02cos\nsystem\n)R.", r"object of 'os\.system'", "where you trust it"),
        (b"\x80\x02cos", "an object that torch.save has pickled", "torch.jit.save"),
    ],
)
def test_archives_of_torch_are_named(tmp_path: Path, content: bytes, what: str, way: str) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", content)
        archive.writestr("m/data/0", bytes(8))
    with pytest.raises(LoadError, match=what) as caught:
        open_model(path)
    assert caught.value.code == "load.not_torchscript"
    assert way in (caught.value.failure.hint or "")
    assert "torch.export.save" in (caught.value.failure.hint or "")
