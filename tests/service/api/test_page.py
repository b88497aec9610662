import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.api import page
from tests.service.live import Live, live
from tests.support import plain_http

BUDGET = 300_000


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("page"), token="s3cret") as running:
        yield running


@pytest.fixture(scope="module")
def visitor(guarded: Live) -> Iterator[httpx.Client]:
    with plain_http.Client(base_url=guarded.url) as client:
        yield client


FILES = sorted(
    str(path.relative_to(page.FOLDER)) for path in page.FOLDER.rglob("*") if path.is_file()
)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_needs_no_token_and_names_files_that_are_there(
    visitor: httpx.Client, path: str
) -> None:
    answer = visitor.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:href|src)="([^"]+)"', answer.text)
    assert len(named) > 3
    for link in named:
        assert visitor.get(f"/{link}").status_code == 200


@pytest.mark.parametrize("path", ["/", *(f"/assets/{name}" for name in FILES)])
def test_nothing_but_the_services_own_files_may_run(visitor: httpx.Client, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*|data:", policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".css"))])
def test_scripts_and_styles_name_files_that_are_there(name: str) -> None:
    path = page.FOLDER / name
    named = re.findall(
        r"""^(?:import\b|export\b|\}\s*from\b)[^"'\n;=(]*["']([^"']+)["']|\burl\(["']?([^"')]+)""",
        path.read_text(),
        re.MULTILINE,
    )
    for result in ("".join(pair) for pair in named):
        assert result.startswith("."), f"{result} is no file of the page"
        assert (path.parent / result).resolve().is_file(), result


def test_the_page_has_no_script_and_no_style_of_its_own(visitor: httpx.Client) -> None:
    text = visitor.get("/").text
    assert not re.search(r"<style|style=|<script>|\son\w+=", text)


def test_a_file_comes_packed_and_once(visitor: httpx.Client) -> None:
    first = visitor.get("/assets/base.css")
    assert first.headers["Content-Encoding"] == "gzip"
    plain = visitor.get("/assets/base.css", headers={"Accept-Encoding": "identity"})
    assert plain.text == first.text
    known = {"If-None-Match": first.headers["ETag"]}
    again = visitor.get("/assets/base.css", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert visitor.head("/").content == b""


def test_what_is_not_there(visitor: httpx.Client) -> None:
    for path in ("/assets/nope.js", "/assets/../app.py", "/assets/%2e%2e/app.py"):
        answer = visitor.get(path)
        assert answer.status_code in (401, 404), path
    assert visitor.post("/").status_code == 405


def test_the_page_is_small() -> None:
    results = {route.path for route in page.routes()}
    assert results == {"/", "/docs", "/assets/{name:path}"}
    sent = 0
    for name in FILES:
        asset = page.asset(page.FOLDER / name)
        sent += 0 if name.endswith(".txt") else len(asset.packed or asset.plain)
    assert sent < BUDGET


def test_the_wheel_brings_the_page() -> None:
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "wheels" / "server" / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["service"]
    brought = {path for pattern in patterns for path in (root / "service").glob(pattern)}
    assert {page.FOLDER / name for name in FILES} <= brought
