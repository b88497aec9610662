"""Tests of turns at the event loop: fair between tenants, in order, and no request is lost."""

import asyncio

import pytest

from service.api.loop_turns import LoopTurns
from service.db.turns import TENANT

STEPS = 20


async def _work(name, done):
    for _ in range(STEPS):
        await asyncio.sleep(0)
        done.append(name)


async def _as_tenant(turns, tenant, work):
    TENANT.set(tenant)
    await turns.run(work)


def test_a_tenant_with_many_requests_takes_a_step_for_each_of_anothers():
    done = []

    async def main():
        turns = LoopTurns()
        many = [_as_tenant(turns, "many", _work("many", done)) for _ in range(50)]
        async with asyncio.TaskGroup() as group:
            for work in many:
                group.create_task(work)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            group.create_task(_as_tenant(turns, "one", _work("one", done)))

    asyncio.run(main())
    assert done.count("many") == 50 * STEPS
    last = len(done) - done[::-1].index("one")
    # Without turns, 50 steps for each of its own.
    assert last < 5 * STEPS


def test_requests_of_a_tenant_go_on_in_the_order_in_which_they_are_ready():
    done = []

    async def main():
        turns = LoopTurns()
        works = [_as_tenant(turns, "a", _work(n, done)) for n in range(3)]
        await asyncio.gather(*works)

    asyncio.run(main())
    assert done == [n for _ in range(STEPS) for n in range(3)]


def test_an_error_and_what_is_awaited_pass_through():
    async def main():
        turns, event = LoopTurns(), asyncio.Event()

        async def fail():
            await event.wait()
            raise ValueError("mine")

        task = asyncio.create_task(turns.run(fail()))
        await asyncio.sleep(0.01)
        assert not task.done()
        event.set()
        with pytest.raises(ValueError, match="mine"):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("waits_for_its_turn", [True, False])
def test_a_cancelled_request_cleans_up_and_the_others_go_on(waits_for_its_turn):
    done, ended = [], []

    async def main():
        turns = LoopTurns()

        async def work():
            try:
                while waits_for_its_turn:
                    await asyncio.sleep(0)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        other = asyncio.create_task(turns.run(_work("other", done)))
        task = asyncio.create_task(turns.run(work()))
        while "other" not in done:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await other

    asyncio.run(main())
    assert done.count("other") == STEPS
    assert ended == ["cancelled"]


def test_a_timeout_inside_of_the_work_is_its_own():
    async def main():
        async def work():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            await asyncio.sleep(0)

        await LoopTurns().run(work())

    asyncio.run(main())
