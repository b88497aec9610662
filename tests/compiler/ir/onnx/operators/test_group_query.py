"""GroupQueryAttention beside ONNX Runtime: prompts, single tokens, caches filled to different
lengths.
"""

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    normal,
    session_of,
)

HEADS, GROUPS, SIZE = 4, 2, 16
NEW = {
    "q": f"float32[n,s,{HEADS * SIZE}]",
    "k": f"float32[n,s,{GROUPS * SIZE}]",
    "v": f"float32[n,s,{GROUPS * SIZE}]",
}
PAST = {"pk": f"float32[n,{GROUPS},p,{SIZE}]", "pv": f"float32[n,{GROUPS},p,{SIZE}]"}
LENGTHS = {"l": "int32[n]", "t": "int32[]"}
OUTPUTS = ["y", "key", "value"]
Feed = dict[str, np.ndarray]


def angles(width: int) -> dict[str, np.ndarray]:
    phase = np.arange(32)[:, None] * 0.5 ** np.arange(width)
    return {"c": np.cos(phase).astype(np.float32), "z": np.sin(phase).astype(np.float32)}


def model_of(
    order: str,
    extra: dict[str, str] | None = None,
    constants: Feed | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    named = {**NEW, **PAST, **LENGTHS, **(extra or {})}
    inputs = {name: spec for name, spec in named.items() if name in order.split()}
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attributes}
    return one_node(
        "GroupQueryAttention", inputs, constants or {}, order, outputs=OUTPUTS, **attributes
    )


def feed(lengths: list[int], rows: int, room: int | None = None) -> Feed:
    """`rows` new tokens for a cache that ends at `lengths` with them; a past of `room` rows unless
    it is None.
    """
    n = len(lengths)
    arrays = {
        "q": normal(n, rows, HEADS * SIZE),
        "k": normal(n, rows, GROUPS * SIZE, seed=1),
        "v": normal(n, rows, GROUPS * SIZE, seed=2),
    }
    if room is not None:
        arrays |= {
            "pk": normal(n, GROUPS, room, SIZE, seed=3),
            "pv": normal(n, GROUPS, room, SIZE, seed=4),
        }
    return {**arrays, "l": np.array(lengths, np.int32) - 1, "t": np.asarray(max(lengths), np.int32)}


STEPS = [feed([4], 1, 3), feed([6, 6], 1, 5)]
RAGGED = [feed([6, 4], 1, 5), feed([5, 3, 1], 1, 4), feed([4, 3], 1, 9)]
CHUNKS = [feed([7], 3, 4), feed([7], 3, 9), feed([2], 1, 1)]
PROMPTS_BESIDE_ROOM = [feed([1], 1, 0), feed([4, 4], 4, 0), feed([3, 3], 3, 7)]
FORMS: list[dict[str, Any]] = [
    {},
    {"local_window_size": 2},
    {"softcap": 1.5, "scale": 0.9},
    {"do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_cache(form: dict[str, Any]) -> None:
    rotary = "do_rotary" in form
    model = model_of(
        "q k v pk pv l t" + " c z" * rotary, constants=angles(SIZE // 2) if rotary else {}, **form
    )
    assert_like_onnxruntime(model, [*STEPS, *RAGGED, *CHUNKS, *PROMPTS_BESIDE_ROOM])


def test_a_window_of_one_and_part_of_a_head_turned() -> None:
    wide = {"q": "float32[n,s,64]", "k": "float32[n,s,32]", "v": "float32[n,s,32]"}
    attributes = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "local_window_size": 1}
    model = model_of("q k v - - l t c z", wide, angles(8), **attributes)
    feeds = [
        {"q": normal(n, s, 64), "k": normal(n, s, 32), "v": normal(n, s, 32, seed=1)}
        for n, s in ((1, 1), (2, 5))
    ]
    assert_like_onnxruntime(
        model,
        [
            {**f, **{name: feed([f["q"].shape[1]] * len(f["q"]), 1)[name] for name in "lt"}}
            for f in feeds
        ],
    )


def test_prompts_padded_at_the_end() -> None:
    model = model_of(
        "q k v - - l t c z", constants=angles(SIZE // 2), do_rotary=1, local_window_size=3
    )
    built, session = build(model), session_of(model)
    for lengths in ([1], [5, 4], [4, 3, 2]):
        inputs = feed(lengths, max(lengths))
        got, wanted = built.run(inputs), session.run(None, dict(inputs))
        for entry, length in enumerate(lengths):
            ours, theirs = (
                [y[entry, :length], k[entry, :, :length], v[entry, :, :length]]
                for y, k, v in (got, wanted)
            )
            assert_close(ours, theirs, OUTPUTS)


def test_packed_queries_keys_and_values() -> None:
    width = (HEADS + 2 * GROUPS) * SIZE
    model = model_of(
        "q - - pk pv l t c z", {"q": f"float32[n,s,{width}]"}, angles(SIZE // 2), do_rotary=1
    )
    packed = [{**f, "q": normal(*f["q"].shape[:2], width)} for f in (*STEPS, *CHUNKS)]
    assert_like_onnxruntime(
        model, [{name: array for name, array in f.items() if name not in "kv"} for f in packed]
    )


def test_scores_that_are_added() -> None:
    model = model_of("q k v pk pv l t - - - e", {"e": "float32[c,h,s,a]"})
    cases = (
        (STEPS[0], 1, 1),
        (STEPS[1], 2, 4),
        (RAGGED[0], 1, 4),
        (CHUNKS[0], 1, 1),
        (CHUNKS[1], 1, 4),
    )
    assert_like_onnxruntime(
        model, [{**f, "e": normal(c, h, f["q"].shape[1], int(f["t"]))} for f, c, h in cases]
    )


def test_sinks() -> None:
    assert_like_onnxruntime(
        model_of("q k v pk pv l t - - - - sink", constants={"sink": normal(HEADS)}),
        [*STEPS, *CHUNKS],
    )
    assert_like_onnxruntime(model_of("q k v pk pv l t", smooth_softmax=1), [*STEPS, *RAGGED])


def test_lengths_that_do_not_fit_are_refused() -> None:
    built = build(model_of("q k v pk pv l t"))
    for last, total in (([9, 5], 6), ([-1, 5], 6), ([5, 5], 3), ([1, 5], 6)):
        wrong = {
            **feed([6, 6], 3, 5),
            "l": np.array(last, np.int32),
            "t": np.asarray(total, np.int32),
        }
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run(wrong)


@pytest.mark.parametrize(
    ("order", "attributes", "message"),
    [
        ("q k v pk pv l t c z p", {"do_rotary": 1}, "position_ids are not supported"),
        ("q k v pk pv l t", {"causal": 0}, "not causal"),
        (
            "q k v pk pv l t",
            {"sliding_window_cache": 1, "local_window_size": 3},
            "attribute sliding_window_cache",
        ),
        (
            "q k v pk pv l t - - - - - s s",
            {"k_quant_type": "PER_TENSOR"},
            "input 12 is not supported",
        ),
    ],
)
def test_what_is_refused(order: str, attributes: dict[str, Any], message: str) -> None:
    constants = {
        name: array
        for name, array in {**angles(SIZE // 2), "s": normal(1)}.items()
        if name in order.split()
    }
    with pytest.raises(ImportFailed, match=message):
        build(model_of(order, {"p": "int64[n,s]"}, constants, **attributes))


def test_a_cache_as_long_as_its_window_says_how_to_export_another() -> None:
    attributes = {"sliding_window_cache": 1, "local_window_size": 3}
    with pytest.raises(ImportFailed) as raised:
        build(model_of("q k v pk pv l t", {"p": "int64[n,s]"}, {}, **attributes))
    assert "windowed_kv_cache=false" in (raised.value.hint or "")
