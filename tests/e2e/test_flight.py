"""However many ask for the same at once, one compile answers them."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.e2e import graphs
from tests.e2e.deployment import Deployment
from tests.support import plain_http

pytestmark = pytest.mark.slow

CALLERS = 50


async def _post_all(url: str, model: bytes, request: str) -> list[dict[str, Any]]:
    limits = httpx.Limits(max_connections=CALLERS)
    async with plain_http.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        files: dict[str, Any] = {"model": ("model.onnx", model), "request": (None, request)}
        answers = await asyncio.gather(
            *(client.post("/v1/compile?wait=240", files=files) for _ in range(CALLERS))
        )
    return [answer.json() for answer in answers]


@pytest.mark.parametrize("service", ["embedded"], indirect=True)
def test_fifty_equal_posts_are_one_compile(service: Deployment) -> None:
    request = json.dumps({"dims": {"n": "1:32"}})
    jobs = asyncio.run(_post_all(service.url, graphs.dense(seed=50), request))
    builds = [job["builds"][0] for job in jobs]
    assert [build["error"] for build in builds if build["state"] != "succeeded"] == []
    assert len({job["id"] for job in jobs}) == CALLERS
    assert len({build["artifact"]["digest"] for build in builds}) == 1
    assert [build["cached"] for build in builds].count(False) == 1
    compiled = [
        job["id"]
        for job in jobs
        if any(event["type"] == "build.stage" for event in service.events(job))
    ]
    assert len(compiled) == 1
