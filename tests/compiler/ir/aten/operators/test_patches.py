"""Images to columns of patches and back, against torch."""

import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check


def test_unfold() -> None:
    check(
        lambda x: (F.unfold(x, 3, padding=1), F.unfold(x[0], (2, 3), stride=2)),
        ("float32", "n,2,n+1,5"),
    )


def test_fold() -> None:
    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return F.fold(F.unfold(x, 3, padding=1, stride=2), (x.size(2), 6), 3, padding=1, stride=2)

    check(there_and_back, ("float32", "n,2,n+1,6"))
