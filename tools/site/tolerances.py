"""The reference of tolerances, from those that verification compares by."""

from compiler.verify.tolerance import MOST, known_tolerances, tolerance_of
from tools.site.tables import table

_FORMULA = """\
```
|got - want| <= atol * range + rtol * |want|
```

`want` is the reference's value of the same element, and `range` the largest finite `|want|` of
the output at that point. Infinities and NaNs have to be at the same positions; shapes and dtypes
are equal. Dtypes that are not listed, integers and booleans among them, are exact. A
tolerance is capped at {most:.0%} of an output's spread (of floats of 8 bits and fewer in the mean),
because a constant would pass by more."""
_OPTIONS = """\
The options `atol` and `rtol` of a build take numbers of your own, as in `--option atol=0.001`.
Every report states the tolerances that it was judged by; `of_tolerance` is the largest part of
what is allowed that an element used."""
_QUANTIZED = """\
Where activations are quantized to some eight bits, a value near the middle between two integers
may be rounded to either: integers of 16 bits and fewer may then be one step off, floats by {atol:g}
of the range, and by {mean:g} of it in the mean."""


def page() -> str:
    """The formula, and its numbers by dtype."""
    rows = [
        (f"`{dtype}`", f"{one.atol:g}", f"{one.rtol:g}")
        for dtype, one in known_tolerances().items()
    ]
    rounded = tolerance_of("float32", None, None, quantized=True)
    parts = (
        "# Tolerances",
        "An output agrees with the reference if of every element",
        _FORMULA.format(most=MOST),
        table(("dtype", "atol", "rtol"), rows).rstrip(),
        _QUANTIZED.format(atol=rounded.atol, mean=rounded.mean),
        _OPTIONS,
    )
    return "\n\n".join(parts) + "\n"
