"""Usage over HTTP: what a build of a project used, for those who may see it."""

import time
from typing import Any

import pytest

from tests.service.live import Live


def compile_for_search(api: Live) -> Any:
    """The ended job."""
    job = api.compile(b"a model that costs", project="search").json()
    until = time.monotonic() + 120
    while job["finished_at"] is None:
        assert time.monotonic() < until
        time.sleep(0.1)
        job = api.http.get(f"/v1/jobs/{job['id']}").json()
    return job


def rows_of_search(api: Live, *parts: str) -> list[Any]:
    """Those of the project, once there are any: usage is written after the build has ended."""
    until = time.monotonic() + 60
    while True:
        params = {"by": ["project", *parts]}
        rows = api.http.get("/v1/usage", params=params).json()["rows"]
        if mine := [row for row in rows if row["project"] == "search"]:
            return mine
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_build_is_counted_for_its_project(api: Live) -> None:
    assert compile_for_search(api)["state"] == "succeeded"
    rows = {row["stage"]: row for row in rows_of_search(api, "stage")}
    assert (rows["import"]["cpu_seconds"], rows["import"]["memory_byte_seconds"]) == (1.5, 3e9)
    assert (rows["import"]["tenant"], rows["import"]["target"]) == (None, None)
    assert rows["publish"]["stored_bytes"] > 0
    assert compile_for_search(api)["builds"][0]["cached"]
    (row,) = rows_of_search(api)
    assert row["cpu_seconds"] == 1.5, "a cached result costs nothing"
    later = api.http.get("/v1/usage", params={"since": "9999-01-01"}).json()
    assert (later["rows"], list(later["stores_bytes"])) == ([], ["default"])


@pytest.mark.parametrize("query", ["since=yesterday", "by=worker"])
def test_what_cannot_be_asked(api: Live, query: str) -> None:
    assert api.http.get(f"/v1/usage?{query}").status_code == 422


def test_a_project_that_no_name_is(api: Live) -> None:
    assert api.compile(project="A b").status_code == 422
