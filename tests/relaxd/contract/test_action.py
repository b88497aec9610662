import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.action import ActionKey, differences
from relaxd.contract.canonical import canonical_bytes, digest_of, is_digest

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
)
DOCUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner),
        max_leaves=4,
    ),
)


def reorder(value):
    if isinstance(value, dict):
        return {key: reorder(item) for key, item in reversed(value.items())}
    return [reorder(item) for item in value] if isinstance(value, list) else value


@given(DOCUMENTS)
def test_a_digest_does_not_depend_on_the_order_of_keys(parts):
    assert ActionKey(parts).digest == ActionKey(reorder(parts)).digest
    assert is_digest(ActionKey(parts).digest)


@given(DOCUMENTS, DOCUMENTS)
def test_digests_differ_exactly_where_some_part_does(lhs, rhs):
    assert (ActionKey(lhs).digest == ActionKey(rhs).digest) == (differences(lhs, rhs) == [])
    mirrored = [(each.part, each.want, each.have) for each in differences(rhs, lhs)]
    assert [(each.part, each.have, each.want) for each in differences(lhs, rhs)] == mirrored


@pytest.mark.parametrize(
    ("lhs", "rhs", "names"),
    [
        ({"model": "a"}, {"model": "b"}, ["model"]),
        (
            {"toolchain": {"tvm": "1", "llvm": "2"}},
            {"toolchain": {"tvm": "1", "llvm": "3"}},
            ["toolchain.llvm"],
        ),
        ({"a": None}, {}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": {"b": 1}}, {"a": 1, "c": 2}, ["a", "c"]),
        ({"a": {"b": {"c": [1]}}}, {"a": {"b": {"c": [2]}}}, ["a.b.c"]),
    ],
)
def test_the_part_that_differs_is_named(lhs, rhs, names):
    assert [each.part for each in differences(lhs, rhs)] == names


def test_canonical_bytes():
    assert (
        canonical_bytes({"b": [1, 1.5, None, True], "a": "é"})
        == '{"a":"é","b":[1,1.5,null,true]}'.encode()
    )
    with pytest.raises(ValueError, match="JSON"):
        canonical_bytes(float("nan"))


def test_digests():
    assert (
        digest_of(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    assert not any(
        map(
            is_digest,
            [
                "",
                "sha256:",
                "sha256:" + "g" * 64,
                "sha256:" + "0" * 63,
                "sha512:" + "0" * 64,
                "sha256:" + "0" * 64 + "\n",
            ],
        )
    )
