"""Tree ensembles and linear models of ai.onnx.ml over rows."""

from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.draft import Draft, Value
from tests.fuzz.registry import operator

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


@operator(0.7)
def forest(draft: Draft) -> None:
    """Complete trees of random depth; every leaf has a weight for one of the targets."""
    x = draft.give_input(2)
    features, targets = x.fix_extents(1), draft.choose((1, 3, 8))
    table: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                              "falsenodeids")
    }  # fmt: skip
    leaves: list[tuple[int, int, int, float]] = []
    mode = draft.choose(MODES)
    for tree in range(draft.choose((1, 2, 7))):
        inner = 2 ** draft.choose((0, 1, 3)) - 1
        for node in range(2 * inner + 1):
            leaf = node >= inner
            row = (
                tree, node, 0 if leaf else int(draft.random.integers(features)),
                0.0 if leaf else float(np.float32(draft.random.standard_normal())),
                "LEAF" if leaf else mode,
                0 if leaf else 2 * node + 1, 0 if leaf else 2 * node + 2,
            )  # fmt: skip
            for column, value in zip(table.values(), row, strict=True):
                column.append(value)
            if leaf:
                weight = float(draft.random.standard_normal())
                leaves.append((tree, node, int(draft.random.integers(targets)), weight))
    columns = list(zip(*leaves, strict=True))
    attributes = {f"nodes_{name}": column for name, column in table.items()}
    attributes |= {
        f"target_{name}": list(column)
        for name, column in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)
    }
    _apply(
        draft, x, "TreeEnsembleRegressor", targets, n_targets=targets,
        aggregate_function=draft.choose(("SUM", "SUM", "AVERAGE", "MAX", "MIN")), **attributes,
    )  # fmt: skip


@operator(0.3)
def linear_model(draft: Draft) -> None:
    x = draft.pick(2)
    features, targets = x.fix_extents(1), draft.choose((1, 3, 8))
    _apply(
        draft, x, "LinearRegressor", targets, targets=targets,
        coefficients=(draft.random.standard_normal(features * targets) / features).tolist(),
        intercepts=draft.random.standard_normal(targets).tolist(),
    )  # fmt: skip


def _apply(draft: Draft, x: Value, op: str, columns: int, **attributes: Any) -> None:
    name = draft.fresh("t")
    draft.nodes.append(
        helper.make_node(op, [x.name], [name], name, domain="ai.onnx.ml", **attributes)
    )
    draft.keep(name, (x.shape[0], columns))
