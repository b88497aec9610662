import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.bundle.manifest import FileEntry, LoadContract, Manifest, Weight
from relaxd.contract.dims.dims import Dim
from relaxd.contract.failures import Failure
from relaxd.errors import BundleError
from tests.support import declared

SPECS = st.lists(
    st.sampled_from(
        [declared.spec(text) for text in ("ids=int64[batch,2*seq]", "x=float32[]", "m=bool[3]")]
    ),
    max_size=2,
    unique=True,
).map(tuple)
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[a-z0-9_]{1,8}(/[a-z0-9_]{1,8}(\.[a-z]{1,4})?)?", fullmatch=True)
DIGESTS = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
SIZES = st.integers(0, 2**40)
MANIFESTS = st.builds(
    Manifest,
    name=WORDS,
    inputs=SPECS,
    outputs=SPECS,
    dims=st.just((Dim("batch", 1, 8), Dim("seq", 8, None, 8, 128))),
    target=st.just({"name": "native"}),
    load=st.builds(
        LoadContract,
        WORDS,
        isa=st.lists(WORDS, max_size=3).map(tuple),
        libc=st.none() | WORDS,
        runtime=st.dictionaries(WORDS, WORDS, max_size=3),
    ),
    action_key=st.just({"digest": "sha256:0", "parts": {}}),
    toolchain=st.dictionaries(WORDS, WORDS, max_size=3),
    files=st.dictionaries(NAMES, st.builds(FileEntry, DIGESTS, SIZES), max_size=3),
    weights=st.lists(
        st.builds(
            Weight,
            st.sampled_from(["float32", "int8"]),
            st.lists(SIZES, max_size=4).map(tuple),
            SIZES,
        ),
        max_size=3,
    ).map(tuple),
    left_out=st.dictionaries(WORDS, WORDS, max_size=2),
)


@given(MANIFESTS)
def test_round_trips_through_json(manifest):
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def document() -> dict:
    return Manifest(
        "m",
        (declared.spec("x=float32[n]"),),
        (),
        (Dim("n"),),
        {},
        LoadContract("x86_64"),
        {},
        {},
    ).to_json()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("name"),
        lambda d: d.pop("inputs"),
        lambda d: d.update(inputs=None),
        lambda d: d.update(inputs=[{"name": "x"}]),
        lambda d: d.update(inputs=[{"name": "x", "dtype": "float32", "shape": ["n/2"]}]),
        lambda d: d.update(dims=[]),
        lambda d: d.update(dims={"n": "1:"[::-1]}),
        lambda d: d.update(load={}),
        lambda d: d.update(load="x86_64"),
        lambda d: d.update(files={"model.so": {}}),
        lambda d: d.update(weights=[{"dtype": "object", "shape": [1], "offset": 0}]),
        lambda d: d.update(left_out={"tokenizer.json": 1}),
        lambda d: d.update(surprise=1),
    ],
)
def test_what_is_malformed_is_a_bundle_error(change):
    changed = document()
    change(changed)
    with pytest.raises(BundleError, match="malformed"):
        Manifest.from_json(changed)


@pytest.mark.parametrize("rhs", [None, [], {}, {"schema_version": 2}, {"schema_version": "1"}])
def test_another_schema(rhs):
    with pytest.raises(BundleError, match="schema version") as caught:
        Manifest.from_json(rhs)
    assert "rebuild" in str(caught.value)


@given(
    st.builds(
        Failure,
        code=st.text(),
        stage=st.text(),
        message=st.text(),
        node=st.none() | st.text(),
        hint=st.none() | st.text(),
        retryable=st.booleans(),
        details=st.dictionaries(st.text(), st.integers() | st.lists(st.text())),
    )
)
def test_failures_round_trip(failure):
    assert Failure.from_json(json.loads(json.dumps(failure.to_json()))) == failure
    assert None not in failure.to_json().values()
