"""Rows about jobs: none is lost, none is done twice, whatever process is killed."""

import asyncio
from collections import Counter
from typing import Any

import httpx

from tests.robustness import roles
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.site import BAD, scaled_site
from tests.robustness.stub import model


def submits(run: Run) -> Outcome:
    """Concurrent submits of one key in 25, at two API processes."""
    keys = max(1, run.count // 25)
    with scaled_site(run.folder, lease_s=30) as scaled:
        here = scaled.site
        urls = [here.api()[1] for _ in range(2)]
        for _ in range(2):
            here.worker()
        models = [model(here.ledger, 0.2, key=f"key {n % keys}") for n in range(run.count)]
        answers = asyncio.run(_post_all(urls, models))
        ids = [answer.json()["id"] for answer in answers if answer.status_code == 202]
        verdict = here.verdict(ids, here.end_of(ids))
        compiles = here.compiles()
    statuses = Counter(answer.status_code for answer in answers)
    failed = sum(count for status, count in statuses.items() if status >= 500)
    counts = {"keys": keys, "compiles": compiles.total(), "5xx": failed, **verdict}
    right = compiles.total() == len(compiles) == keys and len(ids) == run.count and not failed
    stored = right and not any(verdict[bad] for bad in BAD)
    return Outcome(stored, counts, f"statuses {dict(statuses)}, compiles {dict(compiles)}")


async def _post_all(urls: list[str], models: list[bytes]) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:

        async def post(number: int, content: bytes) -> httpx.Response:
            files: dict[str, Any] = {"model": ("model.onnx", content), "request": (None, "{}")}
            return await client.post(f"{urls[number % len(urls)]}/v1/compile", files=files)

        return await asyncio.gather(*(post(*numbered) for numbered in enumerate(models)))


def api_kills(run: Run) -> Outcome:
    """Each API process dies when it would ring for its first job; every client asks again."""
    with scaled_site(run.folder, lease_s=30) as scaled:
        here, refused = scaled.site, 0
        models = [model(here.ledger, key=f"key {number}") for number in range(run.count)]
        for number, content in enumerate(models):
            process, url = here.api(roles.dying_api)
            try:
                _post(url, content, number)
            except httpx.TransportError:
                refused += 1
            process.join()
        committed = [job.id for job in here.services.jobs.list(2 * run.count)]
        here.worker()
        ended = here.end_of(committed)
        _, url = here.api()
        again = {_post(url, content, number) for number, content in enumerate(models)}
        verdict = here.verdict(committed, ended)
    counts = {"kills": refused, **verdict, "jobs after asking again": len(again | set(committed))}
    right = refused == len(committed) == run.count and again == set(committed)
    return Outcome(right and not any(verdict[bad] for bad in BAD), counts)


def _post(url: str, content: bytes, number: int) -> str:
    """The id of the job."""
    files: dict[str, Any] = {"model": ("model.onnx", content), "request": (None, "{}")}
    headers = {"Idempotency-Key": f"request-{number}"}
    answer = httpx.post(f"{url}/v1/compile", files=files, headers=headers, timeout=120)
    return str(answer.raise_for_status().json()["id"])


ROWS = (
    Row(
        "submits",
        "500 concurrent submits of 20 keys: each key is compiled once, no answer is a 5xx",
        500,
        submits,
        unproven="more than one machine; the compiles are stubs of 0.2 s.",
    ),
    Row(
        "api-kills",
        "100 API processes are killed between the commit of a job and its doorbell: every job "
        "ends, and asking again with the same Idempotency-Key makes no second one",
        100,
        api_kills,
    ),
)
