"""`relaxd ci`: compiles a project's models, compares them with a branch's, and reports."""

import json as json_format
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.checks import Check, GateOutcome, junit, markdown, sarif
from relaxd.cli.command import Json
from relaxd.cli.console import Exit, print_json, stderr, stdout
from relaxd.cli.project import FILENAME, ProjectModel, read_project
from relaxd.client.baselines import Baselines, FolderBaselines, RegistryBaselines
from relaxd.client.compiling import CompiledBundle, compile_request
from relaxd.errors import RelaxdError
from relaxd.reports.gates import Gate

SUMMARY = "GITHUB_STEP_SUMMARY"

Config = Annotated[Path, typer.Option("--config", metavar="TOML", help="The project's file.")]
Branch = Annotated[str, typer.Option("--baseline", help="The branch to compare with.")]
Folder = Annotated[
    Path,
    typer.Option(
        "--baselines", metavar="DIR", help="Without a server: the folder of the baselines."
    ),
]
Move = Annotated[
    bool, typer.Option("--move", help="If all checks pass, make these bundles the baseline.")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for the bundles.")
]
Summary = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Append the report as Markdown.",
        show_default=f"{SUMMARY}, where it is set",
    ),
]
JUnit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML."),
]
Sarif = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF."),
]


class DiffFailed(RelaxdError):
    """Two bundles could not be compared."""

    code = "ci.diff_failed"


def ci_command(
    config: Config = Path(FILENAME),
    baseline: Branch = "main",
    move: Move = False,
    output: Output = Path("relaxd-ci"),
    baselines: Folder = Path(".relaxd/baselines"),
    summary: Summary = None,
    junit_file: JUnit = None,
    sarif_file: Sarif = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Compile every model of relaxd.toml, compare with a branch's bundles, and report.

    Exit codes: 1 a build failed, 4 a bundle is worse than its budgets allow.
    """
    models = read_project(config)
    known: Baselines = (
        RegistryBaselines(server, token, baseline)
        if server
        else FolderBaselines(baselines, baseline)
    )
    run = _Run(output, known, server, token)
    checks = [check for model in models for check in run.check(model)]
    _write(checks, summary, junit_file, sarif_file)
    if move and not any(check.problems for check in checks):
        for check in checks:
            known.move(check.model, check.target, str(check.digest), run.folder_of(check))
    if json:
        print_json({"baseline": baseline, "checks": [check.to_json() for check in checks]})
    else:
        stdout().print(markdown(checks), markup=False, soft_wrap=True)
    if any(check.error for check in checks):
        raise typer.Exit(Exit.FAILED)
    if any(check.regressed for check in checks):
        raise typer.Exit(Exit.REGRESSED)


def _write(
    checks: list[Check], summary: Path | None, junit_file: Path | None, sarif_file: Path | None
) -> None:
    if summary is None and os.environ.get(SUMMARY):
        summary = Path(os.environ[SUMMARY])
    if summary is not None:
        with summary.open("a") as file:
            file.write(markdown(checks))
    for path, text in ((junit_file, junit), (sarif_file, sarif)):
        if path is not None:
            path.write_text(text(checks))


@dataclass(frozen=True)
class _Run:
    output: Path
    baselines: Baselines
    server: str | None
    token: str | None

    def folder_of(self, check: Check) -> Path:
        """The folder of the check's bundle."""
        return self.output / check.model / re.sub(r"[^\w.-]", "_", check.target)

    def check(self, model: ProjectModel) -> list[Check]:
        """One check a target, whatever becomes of the others."""
        return [self._target(model, target) for target in model.request.targets]

    def _target(self, model: ProjectModel, target: str) -> Check:
        check = Check(model.name, str(model.path), target)
        stderr().print(f"{model.name}: {target}", markup=False)
        try:
            bundle = self._compiled(model, target, self.folder_of(check))
        except RelaxdError as error:
            return Check(model.name, str(model.path), target, error=str(error))
        return self._compared(check, model, bundle)

    def _compiled(self, model: ProjectModel, target: str, output: Path) -> CompiledBundle:
        bundle = compile_request(
            model.path,
            output,
            replace(model.request, targets=(target,)),
            samples=model.samples,
            server=self.server,
            token=self.token,
        )[target]
        if model.require_verified and (lacking := bundle.numerics.lacking):
            raise RelaxdError(
                f"the build is not verified: {lacking}", hint="or require_verified = false"
            )
        return bundle

    def _compared(self, check: Check, model: ProjectModel, bundle: CompiledBundle) -> Check:
        facts = (check.model, check.path, check.target, bundle.digest, bundle.size)
        with tempfile.TemporaryDirectory(prefix="relaxd-ci-") as scratch:
            baseline = self.baselines.find(check.model, check.target, Path(scratch, "base"))
            if baseline is None:
                return Check(*facts)
            digest, folder = baseline
            if digest == bundle.digest or not model.fail_if:
                return Check(*facts, baseline=digest)
            try:
                gates = differ(folder, bundle.path, model.fail_if)
            except RelaxdError as error:
                return Check(*facts, baseline=digest, error=str(error))
            return Check(*facts, baseline=digest, gates=gates)


def differ(base: Path, head: Path, fail_if: tuple[str, ...]) -> tuple[GateOutcome, ...]:
    """The gates of `relaxd diff`, run in a process of its own, which a library cannot take down
    this one with; raises DiffFailed.
    """
    command = [sys.executable, "-P", "-m", "relaxd", "diff", str(base), str(head)]
    command += ["--format", "json", *(part for text in fail_if for part in ("--fail-if", text))]
    if not any(Gate.of(text).timed for text in fail_if):
        command += ["--seconds", "0"]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        if done.returncode not in (Exit.DONE, Exit.REGRESSED):
            raise ValueError(f"status {done.returncode}")
        listed = json_format.loads(done.stdout)["gates"]
        return tuple(GateOutcome(one["gate"], one["failed"], one["said"]) for one in listed)
    except (ValueError, KeyError, TypeError) as error:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DiffFailed(f"relaxd diff failed: {last}", hint=" ".join(command[3:])) from error
