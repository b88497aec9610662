"""Special functions beside torch in float64, near their zeros, poles and the seams of their
approximations.
"""

import pytest
import torch

from tests.compiler.ir.torchscript.running import Compiled, arguments, trace

S = torch.special
POINTS = torch.tensor(
    [0.0, -0.0, 0.5, 1.0, 2.0, 1e-3, -0.5, -2.5, 3.7, 8.99, 9.01, 11.99, 12.01, 19.9, 20.1, 60.0,
     -1.0, -1.01, -4.2, -8.1, 6.01, torch.inf, -torch.inf, torch.nan]
)  # fmt: skip


def finite(x: torch.Tensor) -> torch.Tensor:
    """torch's own polynomials take a NaN for a number."""
    return x.nan_to_num(0.3, 1.0, -1.0)


FUNCTIONS = {
    **{name: getattr(S, name) for name in (
        "gammaln", "digamma", "erfinv", "ndtr", "ndtri", "log_ndtr", "erfcx", "entr", "i0", "i0e",
        "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
        "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
        "airy_ai", "spherical_bessel_j0",
    )},
    "trigamma": lambda x: torch.polygamma(1, x.abs() + 0.1),
    "polygamma": lambda x: torch.polygamma(3, x.abs() + 0.1),
    "multigammaln": lambda x: S.multigammaln(x.abs() + 1, 2),
    "zeta": lambda x: S.zeta(x.clamp(-60, 60).abs() + 1.5, x.abs().clamp(0, 60) + 0.25),
    "gammainc": lambda x: S.gammainc(x.abs().flip(0), x.abs()),
    "gammaincc": lambda x: S.gammaincc(x.abs().flip(0), x.abs()),
    "xlog1py": lambda x: S.xlog1py(x.flip(0), x),
    "legendre": lambda x: S.legendre_polynomial_p(finite(x).sin(), torch.tensor(5)),
    "hermite": lambda x: S.hermite_polynomial_he(finite(x).sin(), torch.tensor(4)),
    "chebyshev": lambda x: S.shifted_chebyshev_polynomial_w(finite(x).cos(), torch.tensor(3)),
    "laguerre": lambda x: S.laguerre_polynomial_l(finite(x).cos(), torch.tensor(6)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions(name: str) -> None:
    function = FUNCTIONS[name]
    module = trace(function, POINTS)
    (argument,) = arguments(module)
    call = Compiled(module, {argument: "float32[n]"})
    (got,) = call(**{argument: POINTS.numpy()}).values()
    wanted = function(POINTS.double()).float()
    torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=2e-5, atol=2e-6, equal_nan=True)
