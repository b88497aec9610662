"""`relaxd estimate`: how long a call takes at dims that were not measured."""

from typing import Annotated

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.showing import Build, build_report, where
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report import Report
from relaxd.contract.dims.names import quote_name
from relaxd.errors import DeclarationError, EstimateError

Values = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=VALUE",
        help="A dim's value: seq=300. Repeat for several.",
        show_default=False,
    ),
]


def estimate_command(
    ref: Build,
    dim: Values = None,
    target: declare.OneTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Estimate the latency at dims from the cost model of a build's profile.

    The build must have been profiled over a grid: [bold]relaxd compile m.onnx --grid auto[/]

    Example: [bold]relaxd estimate out/ --dim seq=300 --dim batch=4[/]
    """
    dims = _values(dim or [])
    report = build_report(ref, target, server, token)
    profile = _profile(report)
    _check_declared(report, dims)
    estimate = profile.estimate(dims)
    if json:
        print_json({**estimate.to_json(), "machine": profile.to_json()["machine"]})
        return
    point = (
        ", ".join(f"{quote_name(name)}={value}" for name, value in estimate.dims.items())
        or "its only shape"
    )
    stdout().print(f"{estimate.ms:.3g} ms at {point}{where(profile.machine)}", markup=False)
    stdout().print(
        f"error {estimate.error_median:.1%} at the median and {estimate.error_max:.1%} at most, of "
        f"{profile.cost.points if profile.cost else 0} measured points, each left out of the fit",
        style="dim",
    )


def _profile(report: Report) -> Profile:
    """The newest profile that has a cost model, else the newest."""
    with_cost = [one for one in report.profiles if one.cost is not None]
    newest = with_cost[-1] if with_cost else report.profile
    return newest or (report.profiles[-1] if report.profiles else Profile())


def _check_declared(report: Report, dims: dict[str, int]) -> None:
    for dim in report.dims:
        value = dims.get(dim.name)
        if value is not None and value % dim.multiple:
            raise EstimateError(
                f"{quote_name(dim.name)}={value} is not a multiple of {dim.multiple}",
                hint="the library refuses it",
                reason="dims",
            )


def _values(texts: list[str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for text in texts:
        name, value = declare.split_dim(text)
        if not name or not value.isdecimal() or len(value) > 18:
            raise DeclarationError(
                f"cannot read --dim {text!r}", field="dims", hint="as in --dim seq=300"
            )
        if name in values:
            raise DeclarationError(f"--dim {name} is given twice", field=f"dims.{name}")
        values[name] = int(value)
    return values
