"""`relaxd ci`: compiles a project's models, compares them with a branch's, and reports."""

import os
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.cli import declarations as declare
from relaxd.cli import promoting
from relaxd.cli.checks import Check, junit, markdown, sarif
from relaxd.cli.command import Json
from relaxd.cli.comparing import Comparison, differ, judge_accuracy
from relaxd.cli.console import Exit, print_json, stderr, stdout
from relaxd.cli.project import FILENAME, ProjectModel, read_project
from relaxd.client.baselines import Baselines, FolderBaselines, RegistryBaselines
from relaxd.client.compiling import CompiledBundle, compile_request
from relaxd.errors import DeclarationError, RelaxdError
from relaxd.reports.figures import Figures, figures_of

SUMMARY = "GITHUB_STEP_SUMMARY"
OUTPUTS = "GITHUB_OUTPUT"

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
Comment = Annotated[
    bool,
    typer.Option(
        "--comment",
        help="Write the report to the pull request, in place of the last one: GITHUB_TOKEN, or "
        "GITLAB_TOKEN, has to be set.",
    ),
]
Alias = Annotated[
    str | None,
    typer.Option(
        "--alias",
        metavar="ALIAS",
        help="If all checks pass, register each model on the server, and point ALIAS of it there.",
        show_default=False,
    ),
]


def ci_command(
    config: Config = Path(FILENAME),
    baseline: Branch = "main",
    move: Move = False,
    output: Output = Path("relaxd-ci"),
    baselines: Folder = Path(".relaxd/baselines"),
    summary: Summary = None,
    junit_file: JUnit = None,
    sarif_file: Sarif = None,
    comment: Comment = False,
    alias: Alias = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Compile every model of relaxd.toml, compare with a branch's bundles, and report.

    Exit codes: 1 a build failed, 4 a bundle is worse than its budgets allow.
    """
    models = read_project(config)
    if alias is not None:
        if not server:
            raise DeclarationError(
                "aliases are kept by a service", field="alias", hint="name one with --server"
            )
        promoting.require_names(models)
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
    if server:
        promoting.report_failed_gates(checks, server, token)
    document: dict[str, Any] = {
        "baseline": baseline,
        "checks": [check.to_json() for check in checks],
    }
    if comment:
        document["comment"] = _comment(checks, config)
    if alias and server and not any(check.problems for check in checks):
        document["aliases"] = promoting.move_aliases(models, alias, server, token)
    if json:
        print_json(document)
    else:
        stdout().print(markdown(checks), markup=False, soft_wrap=True)
        for one in document.get("aliases", ()):
            before = f" (was {one['previous']})" if one["previous"] is not None else ""
            line = f"{one['name']}@{one['alias']} is version {one['version']}{before}"
            stdout().print(line, markup=False)
    if any(check.error for check in checks):
        raise typer.Exit(Exit.FAILED)
    if any(check.regressed for check in checks):
        raise typer.Exit(Exit.REGRESSED)


def _comment(checks: list[Check], config: Path) -> dict[str, str]:
    """Write the comment. Where that fails, say so and nothing more: the gates decide."""
    from relaxd.client.forge import NoPullRequest, find_forge, write_comment

    try:
        marker = f"<!-- relaxd ci: {config.as_posix().replace('--', '')} -->"
        return {"url": write_comment(find_forge(os.environ), marker, markdown(checks))}
    except NoPullRequest as error:
        stderr().print(f"no comment: {error}", markup=False)
        return {"skipped": error.message}
    except RelaxdError as error:
        stderr().print(f"warning: no comment: {error}", markup=False)
        return {"error": error.message}


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
    if os.environ.get(OUTPUTS):
        failed = sum(bool(check.problems) for check in checks)
        with Path(os.environ[OUTPUTS]).open("a") as file:
            file.write(f"passed={str(not failed).lower()}\nfailed={failed}\n")


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
            check = replace(
                check,
                digest=bundle.digest,
                size=bundle.size,
                job=bundle.job,
                head=_figures(bundle.path),
            )
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
            project=model.project,
        )[target]
        if model.require_verified and (lacking := bundle.numerics.lacking):
            raise RelaxdError(
                f"the build is not verified: {lacking}", hint="or require_verified = false"
            )
        return bundle

    def _compared(self, check: Check, model: ProjectModel, bundle: CompiledBundle) -> Check:
        with tempfile.TemporaryDirectory(prefix="relaxd-ci-") as scratch:
            baseline = self.baselines.find(check.model, check.target, Path(scratch, "base"))
            folder = None
            if baseline is not None:
                digest, folder = baseline
                check = replace(check, baseline=digest)
            try:
                return _judged(check, model, bundle, folder)
            except RelaxdError as error:
                return replace(check, error=str(error))


def _judged(check: Check, model: ProjectModel, bundle: CompiledBundle, base: Path | None) -> Check:
    """The check with its gates; those of the baseline in the folder `base` only where it is another
    bundle.
    """
    changed = None if check.baseline == bundle.digest else base
    if base is not None:
        check = replace(check, base=_figures(base))
    if changed is not None and model.fail_if:
        check = _with_gates(check, differ(changed, bundle.path, model.fail_if))
    if model.accuracy is not None:
        outcome = judge_accuracy(bundle.path, changed, model.accuracy)
        check = replace(check, gates=(*check.gates, outcome))
    return check


def _with_gates(check: Check, comparison: Comparison) -> Check:
    check = replace(check, gates=comparison.gates)
    if not comparison.latency or check.base is None or check.head is None:
        return check
    first = comparison.latency[0]
    base, head = replace(check.base, ms=first.base_ms), replace(check.head, ms=first.head_ms)
    return replace(check, base=base, head=head, in_turns=True)


def _figures(bundle: Path) -> Figures:
    from relaxd.loader.report import report_of

    return figures_of(report_of(bundle))
