"""Archives that nobody has vouched for: each fault is a typed failure, whatever the bytes."""

import json
import random
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compiler.errors import CompileError, LoadError
from compiler.ir.files.model_file import LoadedProgram, open_model, refuse_code
from compiler.ir.pt2.program import read_program
from compiler.ir.pt2.reader import read
from compiler.ir.pt2.symbols import parse_size
from compiler.isolation.level import Level
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.pt2.running import export, save


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t(), persistent=False)
        self.register_buffer("narrow", torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.narrow) + self.turned.sum()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    program = export(Net(), (torch.zeros(2, 3),), ({0: torch.export.Dim("n", max=8)},))
    return save(program, path)


def rewritten(
    saved: Path, path: Path, change: Callable[[dict[str, bytes]], None], **how: Any
) -> Path:
    """A copy of which parts are changed, by their names without the folder."""
    with zipfile.ZipFile(saved) as archive:
        parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(f"net/{name}", content, **how)
    return path


def edit(part: str, change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(parts: dict[str, bytes]) -> None:
        document = json.loads(parts[part])
        change(document)
        parts[part] = json.dumps(document).encode()

    return apply


MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


def test_tensors_are_what_torch_reads(saved: Path) -> None:
    program = read_program(saved)
    stored = {item.path: item for item in program.stored}
    exported = torch.export.load(saved)
    for path, tensor in {**exported.state_dict, **exported.constants}.items():
        data = stored[path].data
        assert str(tensor.dtype).removeprefix("torch.") == data.dtype.name
        np.testing.assert_array_equal(data.astype("f4"), tensor.detach().float().numpy())
    assert stored["turned"].constant
    assert not stored["linear.weight"].constant


def test_the_format_is_told_by_content(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "model.bin"
    other.write_bytes(saved.read_bytes())
    assert isinstance(open_model(other), LoadedProgram)
    # Reading it runs nothing, so that no sandbox is needed.
    refuse_code(other, False, Level.NONE, unlimited=True)


def code_of(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        read(read_program(path), CompileRequest.of())
    return caught.value.code


def _wrong_dtype(document: Any) -> None:
    document["config"]["linear.weight"]["tensor_meta"]["dtype"] = 10


def _beyond(document: Any) -> None:
    document["config"]["linear.weight"]["tensor_meta"]["strides"][0]["as_int"] = 4


def _negative(document: Any) -> None:
    document["config"]["linear.weight"]["tensor_meta"]["storage_offset"] = {"as_int": -1}


def _expanded(document: Any) -> None:
    meta = document["config"]["linear.bias"]["tensor_meta"]
    meta["sizes"], meta["strides"] = [{"as_int": 1 << 40}], [{"as_int": 0}]


def _pickled(document: Any) -> None:
    document["config"]["linear.weight"]["use_pickle"] = True


def _elsewhere(document: Any) -> None:
    document["config"]["linear.weight"]["path_name"] = "../../../../etc/passwd"


def _newer(document: Any) -> None:
    document["schema_version"]["major"] = 9


def _no_graph(document: Any) -> None:
    del document["graph_module"]["graph"]["nodes"]


def _unknown_value(document: Any) -> None:
    node = document["graph_module"]["graph"]["nodes"][0]
    node["inputs"][0]["arg"] = {"as_tensor": {"name": "nowhere"}}


def _calls(document: Any) -> None:
    size = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]
    size["as_expr"]["expr_str"] = "__import__('os').system('true')"


def _custom(document: Any) -> None:
    document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.mine.op.default"


def _python(document: Any) -> None:
    document["graph_module"]["graph"]["nodes"][0]["target"] = "_operator.methodcaller"


def _guard(document: Any) -> None:
    document["guards_code"] = ["__import__('os').getpid() > 0"]


FAULTS = {
    "complex weights": (WEIGHTS, _wrong_dtype, "load.unsupported_dtype"),
    "beyond the storage": (WEIGHTS, _beyond, "load.pt2_malformed"),
    "a negative offset": (WEIGHTS, _negative, "load.pt2_malformed"),
    "one byte as a terabyte": (WEIGHTS, _expanded, "load.pt2_malformed"),
    "pickled": (WEIGHTS, _pickled, "load.pt2_pickled"),
    "a path": (WEIGHTS, _elsewhere, "load.pt2_malformed"),
    "a newer schema": (MODEL, _newer, "load.pt2_version"),
    "no nodes": (MODEL, _no_graph, "load.pt2_malformed"),
    "a value of no node": (MODEL, _unknown_value, "load.pt2_malformed"),
    "a size that calls": (MODEL, _calls, "load.pt2_size"),
    "a custom operator": (MODEL, _custom, "import.unsupported_op"),
    "a function of Python": (MODEL, _python, "import.unsupported_op"),
    "a guard that calls": (MODEL, _guard, "import.pt2_guard"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str, saved: Path, tmp_path: Path) -> None:
    part, change, code = FAULTS[fault]
    assert code_of(rewritten(saved, tmp_path / "m.pt2", edit(part, change))) == code


def test_compressed_parts_are_refused(saved: Path, tmp_path: Path) -> None:
    """So that no part is larger than the file: a bomb would be."""
    path = rewritten(
        saved,
        tmp_path / "m.pt2",
        lambda parts: parts.update(bomb=bytes(10_000_000)),
        compress_type=zipfile.ZIP_DEFLATED,
    )
    assert path.stat().st_size < 100_000
    with pytest.raises(LoadError, match="is compressed"):
        read_program(path)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "net/../../x"])
def test_parts_outside_are_refused(name: str, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"")
    with pytest.raises(LoadError, match="lies outside of its folder"):
        read_program(path)


@pytest.mark.parametrize(
    ("part", "content", "code"),
    [
        ("archive_version", b"7", "load.pt2_version"),
        ("archive_format", b"other", "load.pt2_version"),
        ("byteorder", b"big", "load.pt2_byteorder"),
        (MODEL, b"[" * 100_000, "load.pt2_malformed"),
        (MODEL, b"{}", "load.pt2_malformed"),
        (MODEL, b"7", "load.pt2_malformed"),
    ],
)
def test_other_contents(part: str, content: bytes, code: str, saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "m.pt2", lambda parts: parts.update({part: content}))
    assert code_of(path) == code


def test_archives_of_before_2_8_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", b"{}")
        archive.writestr("serialized_state_dict.pt", b"")
    with pytest.raises(LoadError, match=r"before 2\.8") as caught:
        read_program(path)
    assert "torch.export.save" in str(caught.value.hint)


def _mutate(value: Any, source: random.Random) -> Any:
    """The document with one thing in it replaced, removed or doubled."""
    if isinstance(value, dict) and value:
        key = source.choice(sorted(value))
        if source.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _mutate(value[key], source)}
    if isinstance(value, list) and value:
        index = source.randrange(len(value))
        if source.random() < 0.15:
            return value[:index] + value[index + 1 :]
        return [*value[:index], _mutate(value[index], source), *value[index + 1 :]]
    return source.choice([None, -1, 0, 1 << 62, "x", [], {}, True, 0.5, "s77", {"as_int": 3}])


def _replace(part: str, content: bytes, parts: dict[str, bytes]) -> None:
    parts[part] = content


@pytest.mark.parametrize("part", [MODEL, WEIGHTS])
def test_any_change_of_the_text_is_a_typed_failure_or_none(
    part: str, saved: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(saved) as archive:
        document = json.loads(archive.read(f"net/{part}"))
    refused = 0
    for seed in range(120):
        changed = _mutate(document, random.Random(seed))
        content = json.dumps(changed).encode()
        path = rewritten(saved, tmp_path / f"{seed}.pt2", partial(_replace, part, content))
        try:
            read(read_program(path), CompileRequest.of())
        except CompileError as error:
            refused += error.code != "import.internal"
    assert refused > 20


def test_any_cut_is_a_typed_failure(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    path = tmp_path / "m.pt2"
    source = random.Random(0)
    for _ in range(60):
        damaged = bytearray(data[: source.randrange(len(data) // 2, len(data))])
        damaged += data[-300:] if source.random() < 0.7 else b""
        path.write_bytes(bytes(damaged))
        with pytest.raises(CompileError):
            read(read_program(path), CompileRequest.of())


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("Symbol('s27', positive=True, integer=True)", "s27"),
        ("Add(Mul(Integer(2), Symbol('s0')), Integer(-1))", "2 * s0 + -1"),
        ("FloorDiv(Symbol('s0'), Integer(2))", "s0 // 2"),
        ("Max(Integer(1), Symbol('s0'))", "max(1, s0)"),
        ("Pow(Symbol('s0'), Integer(2))", "s0 * s0"),
    ],
)
def test_sizes(text: str, axis: str) -> None:
    assert parse_size(text).text == axis


@pytest.mark.parametrize(
    "text", ["exec('1')", "Symbol('a b')", "Pow(Integer(2), Symbol('s0'))", "1.5", "(" * 3000, ""]
)
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(LoadError):
        parse_size(text)
