"""Sequences by their items, and back."""

from compiler.ir.onnx.model.item_names import items_of, join_items, split_items


def test_items_are_numbered_without_a_gap() -> None:
    assert items_of("x", {"x_0", "x_1", "x_3", "y_0"}) == ["x_0", "x_1"]
    assert items_of("z", {"x_0"}) == []


def test_there_and_back() -> None:
    values = {"x": [1, 2], "y": 3, "z": None}
    assert split_items(values) == {"x_0": 1, "x_1": 2, "y": 3}
    assert join_items(split_items(values), values) == values
