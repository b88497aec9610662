"""Caches in fewer bits that the caller owns: steps beside ONNX Runtime over rows that are rounded
the same, which are passed in and out.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import relaxd
from compiler.quantize.onnx.kv_cache import quantize_kv_caches
from relaxd.contract.options import CacheForm, CompileOptions, Flavour, StateForm
from relaxd.errors import CapacityError
from relaxd.llm import Engine, Sampling
from relaxd.loader.byte_rows import dequantize_rows
from relaxd.loader.tensors.element_types import dtype_of
from tests.relaxd.llm.models import END, tokenizer
from tests.relaxd.loader.test_state import tokens
from tests.support.models.decoders import (
    FILLED_DIMS,
    GROUPS,
    GROWN_DIMS,
    SIZE,
    Original,
    fill,
    grown,
)

FORMS: dict[CacheForm, tuple[Any, dict[str, Any]]] = {
    CacheForm.FLOAT16: (fill, FILLED_DIMS),
    CacheForm.BFLOAT16: (grown, GROWN_DIMS),
    CacheForm.INT8: (grown, GROWN_DIMS),
}
ROWS = {CacheForm.FLOAT16: 2 * SIZE, CacheForm.BFLOAT16: 2 * SIZE, CacheForm.INT8: SIZE + 4}
"""Bytes of a row."""
FLAVOURS = (Flavour.VM, Flavour.STANDALONE)
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
Bundles = dict[tuple[CacheForm, Flavour], Path]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """One layer: behind it a number in the middle of two may have been rounded either way."""
    created = {}
    for form, (model, dims) in FORMS.items():
        for flavour in FLAVOURS:
            folder = tmp_path_factory.mktemp("caches") / form
            options = CompileOptions(state=StateForm.LIFTED, cache=form, flavour=flavour)
            compiler.compile_model(model(1), output=folder, dims=dims, options=options)
            assert json.loads((folder / "numerics.json").read_text())["verdict"] == "passed"
            created[form, flavour] = folder
    return created


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_those_of_the_original_with_quantized_rows(
    bundles: Bundles, form: CacheForm, flavour: Flavour
) -> None:
    caches = ("present.0.key", "present.0.value")
    original = Original(quantize_kv_caches(FORMS[form][0](1), caches, {}, form))
    state = relaxd.load(bundles[form, flavour]).state(capacity=17)
    for count in (7, 1, 1, 1, 3):
        new = tokens(count, seed=count)
        np.testing.assert_allclose(state.step([new])["logits"][0], original.step(new), **CLOSE)
        for cache, rows in original.caches.items():
            ours = state.cached(cache)
            assert ours.dtype == dtype_of(form)
            if form is CacheForm.INT8:
                # Each step of the original rounds its past again, to the last bit of a scale.
                np.testing.assert_allclose(dequantize_rows(ours), rows[0], rtol=1e-6)
            else:
                np.testing.assert_array_equal(ours.astype(np.float32), rows[0])
    with pytest.raises(CapacityError):
        state.step([tokens(5)])
    assert state.lengths == (13,)


@pytest.mark.parametrize("form", FORMS)
def test_both_flavours_have_the_same_bits_and_fewer_bytes(
    bundles: Bundles, form: CacheForm
) -> None:
    created = [
        relaxd.load(bundles[form, flavour]).state(entries=2, capacity=20) for flavour in FLAVOURS
    ]
    for state in created:
        assert state.nbytes == 2 * 2 * GROUPS * 20 * ROWS[form]
    for count in (6, 1, 1):
        new = [tokens(count, seed=entry) for entry in range(2)]
        ours, theirs = (state.step(new)["logits"] for state in created)
        np.testing.assert_array_equal(ours, theirs)
    size = ROWS[form] // dtype_of(form).itemsize
    header = (bundles[form, Flavour.STANDALONE] / "model.h").read_text()
    assert f" *   i/o  past_key_values.0.key: {form}[batch,{GROUPS},capacity,{size}]" in header


@pytest.mark.parametrize("form", FORMS)
def test_entries_are_cut_copied_swapped_and_forked(bundles: Bundles, form: CacheForm) -> None:
    state = relaxd.load(bundles[form, Flavour.STANDALONE]).state(entries=2, capacity=24)
    state.step([tokens(9)], first=0)
    state.step([tokens(9, 1)], first=1)
    want = state.fork().step([[3], [4]])["logits"]
    state.swap(0, 1)
    other = state.fork()
    np.testing.assert_array_equal(other.step([[4], [3]])["logits"][::-1], want)
    state.copy(1, 0)
    both = state.step([[3], [3]])["logits"]
    np.testing.assert_array_equal(both, np.stack([want[0]] * 2))
    state.truncate(0, 9)
    np.testing.assert_array_equal(state.step([[3]], first=0)["logits"][0], want[0])
    state.reset()
    assert state.lengths == (0, 0)
    assert not state._buffers["past_key_values.0.key"].view(np.uint8).any()


@pytest.mark.parametrize("form", FORMS)
def test_the_engine_shares_rows_in_fewer_bits(
    bundles: Bundles, form: CacheForm, tmp_path: Path
) -> None:
    shared = [(7 * index + 3) % END for index in range(20)]
    words = tokenizer(tmp_path / "tokenizer")
    prompts = [[*shared, index, 2 * index] for index in range(4)]
    with Engine.open(bundles[form, Flavour.STANDALONE], words, threads=1, sequences=2) as engine:
        created = [engine.generate(prompt, Sampling(max_tokens=5)) for prompt in prompts]
        for each in created:
            each.text()
        assert [each.reused for each in created] == [0] + [20] * 3
    with Engine.open(bundles[form, Flavour.STANDALONE], words, threads=1, sharing=False) as alone:
        for each, prompt in zip(created, prompts, strict=True):
            again = alone.generate(prompt, Sampling(max_tokens=5))
            again.text()
            assert each.tokens == again.tokens
