"""Threads for requests, apart for each tenant."""

import asyncio
import threading

from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api.tenant_threads import (
    HEAVY,
    LARGE,
    SHARED,
    WIDTH,
    TenantRoute,
    run_in_thread,
    width_for,
)
from service.db.turns import TENANT


def test_a_tenant_does_not_wait_for_the_threads_of_another() -> None:
    async def check() -> bool:
        free = threading.Event()

        async def work(tenant: str, function) -> bool:
            TENANT.set(tenant)
            return await run_in_thread(function, width=2)

        waiting = [asyncio.create_task(work("a", lambda: free.wait(60))) for _ in range(5)]
        await asyncio.wait_for(asyncio.create_task(work("b", lambda: True)), 30)
        free.set()
        return all(await asyncio.gather(*waiting))

    assert asyncio.run(check())


def test_several_tenants_have_few_threads_each() -> None:
    async def check() -> tuple[int, int]:
        free, lock, begun = threading.Event(), threading.Lock(), 0

        def wait() -> None:
            nonlocal begun
            with lock:
                begun += 1
            free.wait(60)

        async def work(tenant: str, function) -> None:
            TENANT.set(tenant)
            await run_in_thread(function)

        async def begin(expected: int) -> int:
            """How many of twenty calls at once have a thread."""
            nonlocal begun
            begun = 0
            free.clear()
            waiting = [asyncio.create_task(work("a", wait)) for _ in range(20)]
            async with asyncio.timeout(30):
                while begun < expected:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            count = begun
            free.set()
            await asyncio.gather(*waiting)
            return count

        alone = await begin(20)
        await work("b", lambda: None)
        return alone, await begin(SHARED)

    assert asyncio.run(check()) == (20, SHARED)


def test_large_blobs_leave_threads_to_what_is_short() -> None:
    assert [width_for(size) for size in (0, LARGE, LARGE + 1)] == [WIDTH, WIDTH, HEAVY]


def test_plain_endpoints_run_in_a_thread_and_keep_their_signature() -> None:
    app = FastAPI()
    app.router.route_class = TenantRoute

    @app.get("/number/{number}")
    def double(number: int, more: int = 0) -> dict[str, bool | int]:
        apart = threading.current_thread() is not threading.main_thread()
        return {"double": 2 * number + more, "apart": apart}

    with TestClient(app) as client:
        assert client.get("/number/4?more=1").json() == {"double": 9, "apart": True}
        assert client.get("/number/x").status_code == 422
