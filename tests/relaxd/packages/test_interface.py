"""Values of templates, and how templates are filled."""

import pytest

from relaxd.contract.bundle.manifest import FileEntry, LoadContract, Manifest
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import DeclarationError
from relaxd.packages.interface import Interface
from relaxd.packages.kinds import Kind, package_of
from relaxd.packages.languages import CPP, GO, RUST, Language
from relaxd.packages.template import fill


def manifest(**changes: object) -> Manifest:
    parts: dict = {
        "name": "a */ name",
        "inputs": (
            TensorSpec.of("x", "float16[n,2*m]"),
            TensorSpec.of("for", "int4[max(n,m),m//2%3]"),
        ),
        "outputs": (TensorSpec.of("y", "bfloat16[n,k]"),),
        "dims": (Dim.of("n", "1:8%2@4"), Dim.of("m", "0:"), Dim.of("k", "1:9")),
        "target": {"name": "native"},
        "load": LoadContract("x86_64"),
        "action_key": {},
        "toolchain": {},
        "entry": "relaxd_7b",
        "flavour": "standalone",
        "files": {"model.so": FileEntry("0" * 64, 1)},
    }
    return Manifest(**{**parts, **changes})


@pytest.mark.parametrize(
    ("language", "types", "shapes", "names", "module"),
    [
        (
            CPP,
            ["std::uint16_t", "std::int8_t"],
            [
                "dims.n, (std::int64_t{2} * dims.m)",
                "(std::max<std::int64_t>)(dims.n, dims.m), "
                "((dims.m / std::int64_t{2}) % std::int64_t{3})",
            ],
            ["x", "for_"],
            "v7b",
        ),
        (
            RUST,
            ["u16", "i8"],
            ["self.n, (2i64 * self.m)", "(self.n).max(self.m), ((self.m / 2i64) % 3i64)"],
            ["x", "for_"],
            "v7b",
        ),
        (
            GO,
            ["uint16", "int8"],
            ["d.N, (int64(2) * d.M)", "larger(d.N, d.M), ((d.M / int64(2)) % int64(3))"],
            ["X", "For"],
            "v7b",
        ),
    ],
)
def test_an_interface_in_each_language(
    language: Language, types: list[str], shapes: list[str], names: list[str], module: str
) -> None:
    values = Interface(manifest(), language).values()
    assert [row["type"] for row in values["inputs"]] == types
    assert [row["shape"] for row in values["inputs"]] == shapes
    assert [row["tensor"] for row in values["inputs"]] == names
    assert values["module"] == module
    assert values["name"] == "a _ name"


def test_dims_are_those_of_inputs_in_the_order_of_bind() -> None:
    m, n = Interface(manifest(), RUST).values()["dims"]
    assert (m["dim"], m["min"], m["max"], m["value"]) == ("m", 0, str((1 << 63) - 1), 1)
    assert (n["dim"], n["max"], n["multiple"], n["value"]) == ("n", 8, 2, 4)


def test_equal_names_are_told_apart() -> None:
    inputs = tuple(TensorSpec.of(name, "float32[n,N]") for name in ("a/b", "a.b", "_", "N"))
    values = Interface(manifest(inputs=inputs, dims=(Dim("n"), Dim("N"))), GO).values()
    assert [row["tensor"] for row in values["inputs"]] == ["A_b", "A_b_", "V", "N"]
    assert [row["dim"] for row in values["dims"]] == ["N", "N_"]
    assert values["inputs"][0]["shape"] == "d.N_, d.N"


@pytest.mark.parametrize("kind", [Kind.CMAKE, Kind.PKG_CONFIG])
def test_libraries_that_a_kind_does_not_take(kind: Kind) -> None:
    with pytest.raises(DeclarationError, match="not for win32"):
        package_of(kind, manifest(load=LoadContract("x86_64", "win32")))
    with pytest.raises(DeclarationError, match="the backend vm"):
        package_of(kind, manifest(flavour="vm"))


def test_rows_repeat_lines() -> None:
    template = "a @x@\n  @each rows@\n- @x@ @y@\n@each more@\n  @y@ @z@\n@end@\n@end@\nend\n"
    rows = [{"y": 1, "more": [{"z": 5}, {"z": 6}]}, {"x": "own", "y": 2, "more": []}]
    assert fill(template, {"x": "X", "rows": rows}) == "a X\n- X 1\n  1 5\n  1 6\n- own 2\nend\n"


def test_a_value_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="absent"):
        fill("@absent@", {})
