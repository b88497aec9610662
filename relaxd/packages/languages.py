"""How languages name, type and compute what a model's interface is made of."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relaxd.contract.dims.axis_forms import AxisForms, identifier
from relaxd.contract.dims.dims import LARGEST


def to_word(name: str) -> str:
    """An identifier for a model's own word."""
    word = identifier(name).strip("_")
    return word if word[:1].isalpha() else f"v{word}"


@dataclass(frozen=True)
class Language:
    """types: of an element, by the dtype that stores it; taken: words that no dim, input, output
    or model may be called; axes: how shapes are computed; dim: how a shape refers to a dim; spell:
    how a name is written; unbounded: the greatest size of a dim that has none.
    """

    types: Mapping[str, str]
    taken: frozenset[str]
    axes: AxisForms
    dim: str
    spell: Callable[[str], str] = to_word
    unbounded: str = str(LARGEST)


def _types(signed: str, unsigned: str, single: str, double: str) -> dict[str, str]:
    """The types by dtype; signed, unsigned: those of integers, with {} for the bits."""
    integers = {
        f"{kind}{bits}": form.format(bits)
        for kind, form in (("int", signed), ("uint", unsigned))
        for bits in (8, 16, 32, 64)
    }
    byte, half = unsigned.format(8), unsigned.format(16)
    other = {"bool": byte, "float16": half, "bfloat16": half}
    return {**integers, **other, "float32": single, "float64": double}


def _capitalize(name: str) -> str:
    word = to_word(name)
    return word[:1].upper() + word[1:]


_CPP_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t "
    "char32_t char8_t class co_await co_return co_yield compl concept const const_cast "
    "consteval constexpr constinit continue decltype default delete do double dynamic_cast "
    "else enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid "
    "typename union unsigned using virtual void volatile wchar_t while xor xor_eq "
    "linux unix errno NULL EOF stdin stdout stderr Dims Inputs Outputs"
)
CPP = Language(
    _types("std::int{}_t", "std::uint{}_t", "float", "double"),
    frozenset(_CPP_WORDS.split()),
    # Extents are no less than 0, and so is what axes divide.
    AxisForms(
        "({} / {})",
        "({} % {})",
        "(std::min<std::int64_t>)({}, {})",
        "(std::max<std::int64_t>)({}, {})",
        lambda value: f"std::int64_t{{{value}}}",
    ),
    "dims.{}",
)
C = Language(
    _types("int{}_t", "uint{}_t", "float", "double"),
    frozenset((*_CPP_WORDS.split(), "model", "dims", "unused")),
    AxisForms(
        "({} / {})",
        "({} % {})",
        "(({0}) < ({1}) ? ({0}) : ({1}))",
        "(({0}) > ({1}) ? ({0}) : ({1}))",
        lambda value: f"INT64_C({value})",
    ),
    "dims->{}",
)
_RUST_WORDS = (
    "abstract as async await become box break const continue crate do dyn else enum extern "
    "false final fn for gen if impl in let loop macro match mod move mut override priv pub ref "
    "return self Self static struct super trait true try type typeof union unsafe unsized use "
    "virtual where while yield"
)
RUST = Language(
    _types("i{}", "u{}", "f32", "f64"),
    frozenset(_RUST_WORDS.split()),
    AxisForms(
        "({} / {})", "({} % {})", "({}).min({})", "({}).max({})", lambda value: f"{value}i64"
    ),
    "self.{}",
)
_GO_WORDS = (
    "break case chan const continue default defer else fallthrough for func go goto if import "
    "interface main map package range return select struct switch type var"
)
GO = Language(
    _types("int{}", "uint{}", "float32", "float64"),
    frozenset(_GO_WORDS.split()),
    AxisForms(
        "({} / {})",
        "({} % {})",
        "smaller({}, {})",
        "larger({}, {})",
        lambda value: f"int64({value})",
    ),
    "d.{}",
    _capitalize,
)
_CSHARP_INTEGERS = {
    "int8": "sbyte", "int16": "short", "int32": "int", "int64": "long",
    "uint8": "byte", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
}  # fmt: skip
CSHARP = Language(
    {
        **_CSHARP_INTEGERS,
        "bool": "byte",
        "float16": "ushort",
        "bfloat16": "ushort",
        "float32": "float",
        "float64": "double",
    },
    frozenset({"Dims", "Inputs", "Outputs", "Equals", "GetHashCode", "GetType", "ToString"}),
    AxisForms(
        "({} / {})", "({} % {})", "Math.Min({}, {})", "Math.Max({}, {})", lambda value: f"{value}L"
    ),
    "d.{}",
    _capitalize,
)
JAVASCRIPT = Language(
    {
        **_types("Int{}Array", "Uint{}Array", "Float32Array", "Float64Array"),
        "int64": "BigInt64Array",
        "uint64": "BigUint64Array",
        "float16": "Float16",
    },
    frozenset(),
    AxisForms("Math.floor({} / {})", "({} % {})", "Math.min({}, {})", "Math.max({}, {})"),
    "dims[{}]",
    json.dumps,
    "Infinity",
)
"""Its names are the model's, in quotes, as the npm package takes them."""
