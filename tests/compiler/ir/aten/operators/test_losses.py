"""Losses beside torch, at sizes that only run time knows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import Spec, check

ROWS: Spec = ("float32", "n,3")
CLASSES: Spec = ("int64<3", "n")
WEIGHT = torch.tensor([0.5, 2.0, 1.0])

PAIRS: dict[str, Callable[..., Any]] = {
    "mse": lambda x, y: F.mse_loss(x, y),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="sum"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5, reduction="none"),
    "smooth_l1_sharp": lambda x, y: F.smooth_l1_loss(x, y, beta=0.0),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.7),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, y.sign(), margin=0.5),
    "ranking": lambda x, y: F.margin_ranking_loss(x, y, (x - y).sign(), margin=0.1),
    "cosine": lambda x, y: F.cosine_embedding_loss(x, y, (x - y).sum(1).sign(), margin=0.2),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, y - x, swap=True),
    "kl_div": lambda x, y: F.kl_div(x, y.abs(), reduction="batchmean"),
    "kl_div_of_logarithms": lambda x, y: F.kl_div(x, y, log_target=True, reduction="sum"),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), WEIGHT),
    "bce_at_the_ends": lambda x, y: F.binary_cross_entropy((x > 0).float(), y.sigmoid()),
    "bce_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), pos_weight=WEIGHT
    ),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y.abs() + 1, full=True),
    "poisson_of_rates": lambda x, y: F.poisson_nll_loss(x.abs(), y.abs(), log_input=False),
    "probabilities": lambda x, y: F.cross_entropy(x, y.softmax(1), WEIGHT, label_smoothing=0.1),
}


@pytest.mark.parametrize("name", PAIRS)
def test_of_two_tensors(name: str) -> None:
    check(PAIRS[name], ROWS, ROWS)


OF_CLASSES: dict[str, Callable[..., Any]] = {
    "nll": lambda x, y: F.nll_loss(x.log_softmax(1), y, WEIGHT),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y, ignore_index=1, reduction="none"),
    "smoothed": lambda x, y: F.cross_entropy(x, y, WEIGHT, label_smoothing=0.2),
    "multi_margin": lambda x, y: F.multi_margin_loss(x, y, p=2, weight=WEIGHT),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_of_classes(name: str) -> None:
    check(OF_CLASSES[name], ROWS, CLASSES)


def test_integers_become_floats() -> None:
    check(
        lambda x, y: (
            F.triplet_margin_loss(x, y, x - y),
            F.poisson_nll_loss(x, y),
            F.margin_ranking_loss(x, y, x),
            F.pairwise_distance(x, y),
        ),
        ("int64", "n,3"),
        ("int64", "n,3"),
    )


def test_cross_entropy_of_one_sample() -> None:
    check(lambda x, y: F.cross_entropy(x[0], y[0]), ROWS, CLASSES, sizes=(3,))


def test_several_own_classes() -> None:
    target = torch.tensor([[2, 0, -1], [-1, 1, 1], [0, 1, 2]])
    check(lambda x: F.multilabel_margin_loss(x, target), ("float32", "3,3"), sizes=(3,))


def test_what_is_refused_says_why() -> None:
    def ctc(x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((2,), 4), torch.full((2,), 2)
        return F.ctc_loss(x.log_softmax(2), torch.ones(2, 2, dtype=torch.int64), *lengths)

    with pytest.raises(ImportFailed, match="outside of the model"):
        check(ctc, ("float32", "4,2,5"), sizes=(3,))
