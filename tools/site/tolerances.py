"""The reference of tolerances, from those that verification compares by."""

from compiler.verify.judge.tolerance import MOST, known_tolerances
from tools.site.tables import table

_FORMULA = """\
```
|got - want| <= atol * range + rtol * |want|
```

`want` is the reference's value of the same element, and `range` the largest finite `|want|` of
the output at that point. Infinities and NaNs have to be at the same positions; shapes and dtypes
are equal. Dtypes that are not listed, integers and booleans among them, are exact."""
_OPTIONS = """\
The options `atol` and `rtol` of a build take numbers of your own, as in `--option atol=0.001`.
Every report states the tolerances that it was judged by; `of_tolerance` is the largest part of
what is allowed that an element used."""
_BOUND = """\
No element may be off by more than {most:g} of the output's spread, or of its own distance from
the median, whatever these numbers say. Where activations are quantized to some eight bits on the
way, integers of 16 bits and fewer may be one step off, and in the mean by as much of their spread.
Outputs that exceed their tolerance are judged
[beside perturbed references and float64](../explanation/verification.md#where-an-output-deviates).
"""


def page() -> str:
    """The formula, and its numbers by dtype."""
    rows = [
        (f"`{dtype}`", f"{one.atol:g}", f"{one.rtol:g}")
        for dtype, one in known_tolerances().items()
    ]
    parts = (
        "# Tolerances",
        "An output agrees with the reference if of every element",
        _FORMULA,
        table(("dtype", "atol", "rtol"), rows).rstrip(),
        _BOUND.format(most=MOST).rstrip(),
        _OPTIONS,
    )
    return "\n\n".join(parts) + "\n"
