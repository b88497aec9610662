"""Caches that the caller owns: the steps of a session beside ONNX Runtime, whose caches are passed
in and out.
"""

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import relaxd
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.state import Part
from relaxd.contract.options import CompileOptions, Flavour, StateForm
from relaxd.errors import CapacityError, InputError
from relaxd.loader.machine import large_pages
from tests.support.models.decoders import (
    CROSSED,
    FILLED_DIMS,
    GROUPS,
    GROWN_DIMS,
    LONGEST,
    SIZE,
    WORDS,
    Original,
    add_cross_attention,
    fill,
    grown,
)

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "filled": (fill, FILLED_DIMS),
    "grown": (grown, GROWN_DIMS),
}
STATE_OPTIONS = CompileOptions(state=StateForm.LIFTED)
FLAVOURS = (Flavour.STANDALONE, Flavour.VM)
Built = dict[Flavour, dict[str, Path]]
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    created: Built = {flavour: {} for flavour in FLAVOURS}
    for flavour, folders in created.items():
        for name, (model, dims) in MODELS.items():
            folders[name] = tmp_path_factory.mktemp(flavour) / name
            options = replace(STATE_OPTIONS, flavour=flavour)
            compiler.compile_model(model(), output=folders[name], dims=dims, options=options)
            assert json.loads((folders[name] / "numerics.json").read_text())["verdict"] == "passed"
    return created


@pytest.fixture(scope="module", params=FLAVOURS)
def bundles(built: Built, request: pytest.FixtureRequest) -> dict[str, Path]:
    """The models, once for each backend."""
    return built[request.param]


@pytest.fixture(scope="module")
def alone(built: Built) -> dict[str, Path]:
    """The models without a runtime."""
    return built[Flavour.STANDALONE]


@pytest.mark.parametrize("name", MODELS)
def test_without_a_runtime_answers_and_caches_have_the_same_bits(built: Built, name: str) -> None:
    created = [
        relaxd.load(built[flavour][name]).state(entries=2, capacity=20)
        for flavour in (Flavour.VM, Flavour.STANDALONE)
    ]
    for count in (7, 1, 1, 3):
        new = [tokens(count, seed=entry) for entry in range(2)]
        theirs, ours = (state.step(new)["logits"] for state in created)
        np.testing.assert_array_equal(ours, theirs)
    created[1].truncate(1, 5)
    created[0].truncate(1, 5)
    theirs, ours = (state.step([tokens(2)], first=1)["logits"] for state in created)
    np.testing.assert_array_equal(ours, theirs)
    for cache in created[0]._described.caches:
        for entry in range(2):
            theirs, ours = (state.cached(cache.input, entry) for state in created)
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_the_header_says_which_inputs_are_written(alone: dict[str, Path], name: str) -> None:
    header = (alone[name] / "model.h").read_text()
    caches = relaxd.load(alone[name]).manifest.state.caches
    assert header.count(" *   i/o ") == len(caches)
    assert all(f" *   i/o  {cache.input}: " in header for cache in caches)


def tokens(count: int, seed: int = 0) -> list[int]:
    return list(np.random.default_rng(seed).integers(0, WORDS, count).tolist())


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_and_tokens_one_by_one_are_like_the_original(
    bundles: dict[str, Path], name: str
) -> None:
    original = Original(MODELS[name][0]())
    state = relaxd.load(bundles[name]).state(capacity=13)
    for count in (7, 1, 1, 1, 3):
        new = tokens(count, seed=count)
        ours = state.step([new])["logits"][0]
        np.testing.assert_allclose(ours, original.step(new), **CLOSE)
        for cache, rows in original.caches.items():
            np.testing.assert_allclose(state.cached(cache), rows[0], **CLOSE)
    assert state.lengths == (13,)


@pytest.mark.skipif(not large_pages.available(), reason="this kernel gives no large pages")
def test_weights_are_in_large_pages_unless_they_are_to_be_mapped(bundles: dict[str, Path]) -> None:
    def mapped() -> bool:
        return str(bundles["grown"] / "weights.bin") in Path("/proc/self/maps").read_text()

    one = relaxd.load(bundles["grown"])
    assert not mapped()
    other = relaxd.load(bundles["grown"], copy_weights=False)
    assert mapped()
    ours, theirs = (model.state().step([tokens(5)])["logits"] for model in (one, other))
    np.testing.assert_array_equal(ours, theirs)


def test_caches_begin_at_a_cache_line(bundles: dict[str, Path]) -> None:
    state = relaxd.load(bundles["grown"]).state(entries=3, capacity=13)
    caches = [cache.input for cache in state._described.caches]
    assert [state.cached(name).ctypes.data % 64 for name in caches] == [0] * len(caches)


def test_a_step_makes_no_tensors_of_what_is_kept(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relaxd.loader.tensors.arrays import Transport

    model = relaxd.load(built[Flavour.VM]["filled"])
    state, created = model.state(entries=3, capacity=24), []
    arguments = Transport.to_tensor
    state.step([tokens(4)] * 3)
    state.step([[1]], first=1)
    monkeypatch.setattr(
        Transport, "to_tensor", lambda *all_of_it: (created.append(1), arguments(*all_of_it))[1]
    )
    caches = len(model.manifest.state.caches) if model.manifest.state else 0
    for first, entries in ((0, 3), (1, 1), (0, 3)):
        state.step([[2]] * entries, first=first)
    assert len(created) == 3 * (len(model.inputs) - caches)


@pytest.mark.parametrize("name", MODELS)
def test_states_of_one_library_take_turns(alone: dict[str, Path], name: str) -> None:
    model = relaxd.load(alone[name], threads=1)
    one, other = model.state(capacity=24), model.state(capacity=24)
    combined, apart = tokens(9, seed=1), tokens(9, seed=2)
    mixed = [
        (one.step([[mine]]), other.step([[theirs]]))
        for mine, theirs in zip(combined, apart, strict=True)
    ]
    for state, text, side in ((model.state(capacity=24), combined, 0), (other, apart, 1)):
        state.reset()
        for number, token in enumerate(text):
            wanted = state.step([[token]])
            for output, values in mixed[number][side].items():
                np.testing.assert_array_equal(values, wanted[output])


def test_a_library_holds_no_caches_of_states_that_are_gone(alone: dict[str, Path]) -> None:
    model = relaxd.load(alone["filled"], threads=1)
    state = model.state(capacity=24)
    state.step([tokens(4)])
    buffers = [weakref.ref(buffer) for buffer in state._buffers.values()]
    del state
    gc.collect()
    assert [buffer() for buffer in buffers] == [None] * len(buffers)


def test_steps_beyond_what_was_verified_are_counted(bundles: dict[str, Path]) -> None:
    model = relaxd.load(bundles["filled"])
    model = type(model)(model.manifest, model._engine, model._team, {"total": 6})
    state = model.state(capacity=24)
    for count in (5, 1, 1, 1):
        state.step([tokens(count)])
    assert model.unverified_runs == 2


@pytest.mark.parametrize("name", MODELS)
def test_what_does_not_fit_changes_nothing(bundles: dict[str, Path], name: str) -> None:
    state = relaxd.load(bundles[name]).state(capacity=8)
    state.step([tokens(6)])
    with pytest.raises(CapacityError, match="9 tokens are too many: there is room for 8") as caught:
        state.step([tokens(3)])
    assert caught.value.details == {"tokens": 9, "capacity": 8}
    assert state.lengths == (6,)
    state.step([tokens(2)])
    assert state.lengths == (8,)


@pytest.mark.parametrize("name", MODELS)
def test_truncating_forking_and_resetting(bundles: dict[str, Path], name: str) -> None:
    state = relaxd.load(bundles[name]).state(capacity=20)
    state.step([tokens(9)])
    one = state.step([[5]])["logits"]
    other = state.fork()
    state.truncate(0, 9)
    np.testing.assert_array_equal(state.step([[5]])["logits"], one)
    np.testing.assert_array_equal(state.step([[8]])["logits"], other.step([[8]])["logits"])
    state.step([[1]])
    assert (state.lengths, other.lengths) == ((12,), (11,))
    state.reset()
    assert state.lengths == (0,)
    fresh = relaxd.load(bundles[name]).state(capacity=20)
    np.testing.assert_array_equal(
        state.step([tokens(4)])["logits"], fresh.step([tokens(4)])["logits"]
    )
    with pytest.raises(InputError, match="has 4 tokens: it cannot be truncated to 5"):
        state.truncate(0, 5)


def test_entries_of_different_lengths_take_one_step(bundles: dict[str, Path]) -> None:
    model = relaxd.load(bundles["filled"])
    state = model.state(entries=3, capacity=24)
    originals = [Original(fill()) for _ in range(3)]
    for entry, (original, count) in enumerate(zip(originals, (4, 11, 1), strict=True)):
        state.step([tokens(count, entry)], first=entry)
        original.step(tokens(count, entry))
    for turn in range(4):
        new = tokens(3, 50 + turn)
        logits = state.step([[token] for token in new])["logits"]
        for original, token, ours in zip(originals, new, logits, strict=True):
            np.testing.assert_allclose(ours, original.step([token]), **CLOSE)
    state.copy(1, 0)
    assert state.lengths == (15, 15, 5)
    both = state.step([[3], [3]])["logits"]
    np.testing.assert_allclose(both[0], both[1], **CLOSE)


@pytest.mark.parametrize("lengths", [(4, 11, 1), (9, 0, 5), (0, 0, 0)], ids=str)
def test_entries_of_different_lengths_take_several_tokens_at_once(
    bundles: dict[str, Path], lengths: tuple[int, ...]
) -> None:
    model = relaxd.load(bundles["filled"])
    state = model.state(entries=3, capacity=40)
    originals = [Original(fill()) for _ in lengths]
    for entry, (original, count) in enumerate(zip(originals, lengths, strict=True)):
        if count:
            state.step([tokens(count, entry)], first=entry)
            original.step(tokens(count, entry))
    for rows in (2, 5, 1, 3):
        new = [tokens(rows, 7 * rows + entry) for entry in range(3)]
        logits = state.step(new)["logits"]
        for original, own, ours in zip(originals, new, logits, strict=True):
            np.testing.assert_allclose(ours, original.step(own), **CLOSE)
    for entry, original in enumerate(originals):
        for cache, rows_of in original.caches.items():
            np.testing.assert_allclose(state.cached(cache, entry), rows_of[0], **CLOSE)


def test_entries_are_swapped_and_give_their_beginnings(bundles: dict[str, Path]) -> None:
    model = relaxd.load(bundles["filled"])
    state = model.state(entries=2, capacity=24)
    state.step([tokens(9)], first=0)
    state.step([tokens(4, 1)], first=1)
    other = state.fork()
    state.swap(0, 1)
    assert state.lengths == (4, 9)
    swapped, plain = state.step([[3], [3]])["logits"], other.step([[3], [3]])["logits"]
    np.testing.assert_allclose(swapped[::-1], plain, **CLOSE)
    state.copy(1, 0, 6)
    other.copy(1, 0, 6, other=state)
    assert (state.lengths, other.lengths) == ((6, 10), (6, 5))
    alone = model.state(capacity=24)
    alone.step([tokens(9)[:6]])
    want = alone.step([[3]])["logits"][0]
    for created in (state, other):
        np.testing.assert_allclose(created.step([[3]])["logits"][0], want, **CLOSE)
    state.copy(1, 1, 2)
    assert state.lengths == (7, 2)
    with pytest.raises(InputError, match="entry 0 has 7 tokens: 8 cannot be copied from it"):
        state.copy(0, 1, 8)


def test_caches_that_grow_keep_one_length(bundles: dict[str, Path]) -> None:
    state = relaxd.load(bundles["grown"]).state(entries=2, capacity=9)
    state.step([tokens(2)], first=1)
    with pytest.raises(InputError, match="entries of different lengths"):
        state.step([[1], [2]])


def test_what_the_manifest_and_the_reports_say(bundles: dict[str, Path]) -> None:
    described = {}
    for name, folder in bundles.items():
        manifest = Manifest.from_json(json.loads((folder / "manifest.json").read_text()))
        assert manifest.state is not None
        described[name] = manifest.state
        assert [spec.name for spec in manifest.outputs] == ["logits"]
        numerics = json.loads((folder / "numerics.json").read_text())
        assert numerics["verdict"] == "passed"
        presents = {cache.output for cache in manifest.state.caches}
        assert presents < {output["name"] for output in numerics["outputs"]}
        measured = json.loads((folder / "profile.json").read_text())
        assert measured["measured"]
        assert measured["points"]
    assert described["filled"].ragged
    assert described["filled"].parts == {"attention_mask": Part.MASK}
    assert described["grown"].parts == {"past.rows": Part.PAST, "position_ids": Part.POSITIONS}


def test_a_step_copies_no_cache(bundles: dict[str, Path]) -> None:
    for folder in bundles.values():
        kernels = json.loads((folder / "kernels.json").read_text())["kernels"]
        names = {kernel["name"] for kernel in kernels}
        assert {"written", "attention"} <= names
        assert not {name for name in names if "appended" in name}


def test_a_cache_that_would_be_copied_is_refused(bundles: dict[str, Path]) -> None:
    model = relaxd.load(bundles["filled"])
    caches = {spec.name: np.zeros((1, 2, 8, 16), np.float32) for spec in model.inputs[2:]}
    arguments = {"input_ids": np.array([[1]]), "attention_mask": np.array([[1]])}
    model.run({**arguments, **caches})
    name = next(iter(caches))
    caches[name].flags.writeable = False
    with pytest.raises(InputError, match="is written in place"):
        model.run({**arguments, **caches})


def test_capacities_that_the_bundle_does_not_admit(bundles: dict[str, Path]) -> None:
    model = relaxd.load(bundles["filled"])
    assert model.state().capacity == LONGEST
    with pytest.raises(InputError, match=f"the capacity must be .*, got {LONGEST + 1}"):
        model.state(capacity=LONGEST + 1)


@pytest.mark.parametrize("name", MODELS)
def test_steps_of_one_token(tmp_path: Path, name: str) -> None:
    model, dims = MODELS[name]
    one = {**dims, "seq": 1}
    compiler.compile_model(model(1), output=tmp_path / "out", dims=one, options=STATE_OPTIONS)
    state, original = relaxd.load(tmp_path / "out").state(capacity=7), Original(model(1))
    for token in tokens(7):
        ours = state.step([[token]])["logits"][0]
        np.testing.assert_allclose(ours, original.step([token]), **CLOSE)
    assert state.lengths == (7,)
    state.reset()
    with pytest.raises(InputError, match="seq"):
        state.step([[1, 2]])
    assert state.lengths == (0,)


def states(source: int, seed: int, entries: int = 1) -> dict[str, np.ndarray]:
    """Keys and values of an encoder."""
    draw = np.random.default_rng(seed)
    shape = (entries, GROUPS, source, SIZE)
    return {name: draw.standard_normal(shape).astype(np.float32) for name in CROSSED}


@pytest.fixture(scope="module")
def behind_an_encoder(tmp_path_factory: pytest.TempPathFactory) -> relaxd.Model:
    folder, dims = tmp_path_factory.mktemp("state") / "crossed", {**GROWN_DIMS, "source": (1, 40)}
    compiler.compile_model(add_cross_attention(), output=folder, dims=dims, options=STATE_OPTIONS)
    return relaxd.load(folder)


def test_what_an_encoder_made_is_held_while_tokens_are_added(
    behind_an_encoder: relaxd.Model,
) -> None:
    state = behind_an_encoder.state(capacity=16)
    with pytest.raises(InputError, match="inputs, got one array"):
        state.step([[1]])
    for source in (1, 13, 40):
        stored = states(source, seed=source)
        state.reset()
        state.hold(stored)
        assert [spec.name for spec in state.free] == ["input_ids"]
        original = Original(add_cross_attention(), stored)
        for count in (3, 1, 1):
            new = tokens(count, seed=count)
            np.testing.assert_allclose(state.step([new])["logits"][0], original.step(new), **CLOSE)
    other = state.fork().step([[5]])["logits"]
    np.testing.assert_array_equal(other, state.step([[5]])["logits"])
    with pytest.raises(InputError, match="'input_id' cannot be held between steps"):
        state.hold({"input_id": np.zeros((1, 1))})
    with pytest.raises(InputError, match="its first axis must be 1, the entries"):
        state.hold(states(4, seed=0, entries=2))


def test_entries_keep_what_is_held_for_them(behind_an_encoder: relaxd.Model) -> None:
    state, stored = behind_an_encoder.state(entries=2, capacity=16), states(7, seed=1, entries=2)
    state.hold(stored)
    state.step([tokens(3)], first=1)
    alone = Original(add_cross_attention(), {name: array[1:] for name, array in stored.items()})
    alone.step(tokens(3))
    got = state.step([[4]], first=1)["logits"][0]
    np.testing.assert_allclose(got, alone.step([4]), **CLOSE)
