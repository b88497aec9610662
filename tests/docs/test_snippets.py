"""Every block of shell and Python in the documentation is run here, or says in a comment of the
page why it is not.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from relaxd.cli.project import read_project
from relaxd.contract.request import CompileRequest
from service.adapters.oidc import read_issuers
from tests.docs import blocks, models, static, story
from tests.docs.blocks import PAGES, ROOT, Block, Kind
from tests.e2e.deployment import Deployment
from tests.support.servers import missing

pytestmark = pytest.mark.slow

LANGUAGES = {
    "",
    "sh",
    "console",
    "python",
    "toml",
    "json",
    "yaml",
    "js",
    "c",
    "cpp",
    "go",
    "rust",
    "cmake",
    "kotlin",
    "protobuf",
    "csharp",
}
NOT_RUN = {Kind.SKIP, Kind.ELSEWHERE, Kind.FROM}
ALL = os.environ.get("RELAXD_DOCS") == "all"
EVERY = {page: list(blocks.blocks_of(page)) for page in PAGES}


def runs(block: Block) -> bool:
    """True if this test runs the block."""
    plain = block.language in blocks.SHELL or (block.language == "python" and not block.info)
    plain = plain or (block.language in ("toml", "c") and bool(block.info))
    return plain and not NOT_RUN & block.marks.keys() and (ALL or Kind.HEAVY not in block.marks)


STORIES = [page for page in PAGES if any(map(runs, EVERY[page]))]
FIRST = ("README.md", "docs/tutorials/getting-started.md", "docs/tutorials/onnx-file.md")
"""Pages that newcomers read first."""


def name_values(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("service")
    deployment = Deployment.start_embedded(folder, RELAXD_TOKEN=story.TOKEN)
    deployment.started_in = folder
    models.add_namesakes(folder)
    with deployment:
        yield deployment


def stories() -> Iterator[Any]:
    for page in STORIES:
        marks = () if name_values(page) in FIRST else (pytest.mark.long,)
        yield pytest.param(page, marks=marks, id=name_values(page))


@pytest.mark.parametrize("page", list(stories()))
def test_a_page_does_what_it_says(
    page: Path, service: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.shims(tmp_path / "bin", service.url)
    story.environment(monkeypatch, tmp_path / "bin")
    if lacking := story.lacking(filter(runs, EVERY[page])):
        missing(lacking, f"apt-get install {lacking}")
    folder = tmp_path / "page"
    folder.mkdir()
    models.lay_out(folder)
    if any(Kind.HEAVY in block.marks for block in filter(runs, EVERY[page])):
        models.lay_out_scripts(folder)
    models.add_namesakes(folder)
    monkeypatch.chdir(folder)
    with ExitStack() as stack:
        reported = story.Story(folder, service, stack)
        stack.callback(reported.close)
        for block in filter(runs, EVERY[page]):
            reported.tell(block)


@pytest.mark.parametrize("page", PAGES, ids=name_values)
def test_every_block_can_be_read(page: Path) -> None:
    assert {block.language for block in EVERY[page]} <= LANGUAGES
    assert [problem for block in EVERY[page] for problem in static.problems(block)] == []
    for block in EVERY[page]:
        assert all(block.marks[kind] for kind in NOT_RUN & block.marks.keys()), f"{block}: why?"


def of(page: str, language: str) -> list[str]:
    return [block.body for block in EVERY[ROOT / page] if block.language == language]


def test_the_files_of_the_pages_are_accepted(tmp_path: Path) -> None:
    models_read = []
    for project in of("docs/howto/ci.md", "toml"):
        (tmp_path / "relaxd.toml").write_text(project)
        models_read += read_project(tmp_path / "relaxd.toml")
    plain, labelled = models_read
    assert plain.request.targets == ("x86-64-v3", "aarch64")
    assert labelled.accuracy is not None
    assert labelled.accuracy.loss == 0.005
    (step,) = (yaml.safe_load(text)[0] for text in of("docs/howto/ci.md", "yaml"))
    action = yaml.safe_load((ROOT / "ci/action.yml").read_text())
    assert step["with"].keys() <= action["inputs"].keys()
    (tmp_path / "issuers.toml").write_text("\n".join(of("docs/howto/tenants.md", "toml")))
    of_machines, of_people = read_issuers(tmp_path / "issuers.toml")
    assert (of_machines.client_id, of_people.client_id) == (None, "relaxd")


def test_the_documents_of_the_http_page_are_those_of_the_service(service: Deployment) -> None:
    request, job, problem = map(json.loads, of("docs/reference/http-api.md", "json"))
    del request["samples"]
    CompileRequest.of(**request)
    answer = service.post(b"", "{}")
    assert answer.status_code == 401
    assert problem.keys() - {"field", "hint"} <= answer.json().keys()
    assert job.keys() == {
        "id",
        "state",
        "name",
        "model",
        "created_at",
        "finished_at",
        "request",
        "builds",
        "index",
        "priority",
        "deadline",
    }


def test_blocks_and_what_is_said_about_them(tmp_path: Path) -> None:
    text = (
        "<!-- snippet: skip a reason -->\n```sh\nrelaxd list\n```\n\n"
        "<!-- snippet: before\nmkdir a\n-->\n<!-- snippet: fails 2 -->\n\n"
        "  ```console\n  $ relaxd compile a.onnx \\\n      --speed 9\n  error: 9\n"
        "  $ make all\n  ```\n"
        "```python\nx =\n```\n```json\n{\n```\n"
        "<!-- snippet: from tests/support/models/small.py -->\n```python\nWIDTH = 33\n```\n"
    )
    results = list(blocks_of_text(tmp_path, text))
    shell, console, *_ = results
    assert shell.marks == {Kind.SKIP: "a reason"}
    assert console.marks == {Kind.BEFORE: "mkdir a", Kind.FAILS: "2"}
    assert [command.prints for command in console.commands] == [("error: 9",), ()]
    wrong = [problem for block in results for problem in static.problems(block)]
    assert len(wrong) == 6
    for text, problem in zip(
        ("no command 'list'", "--speed", "no target all", "invalid syntax", "Expecting", "WIDTH"),
        wrong,
        strict=True,
    ):
        assert text in problem


def blocks_of_text(folder: Path, text: str) -> Iterator[Block]:
    page = folder / "page.md"
    page.write_text(text)
    return blocks.blocks_of(page)
