"""No job is lost, whatever is killed."""

import pytest

from tests.e2e import graphs
from tests.e2e.deployment import Deployment, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fragile", ["embedded"], indirect=True)
@pytest.mark.long
def test_a_job_survives_its_worker(fragile: Deployment) -> None:
    job = fragile.post(graphs.dense(), "{}", wait=0).json()
    fragile.kill_compiling_worker()
    with fragile.client() as client:
        done = client.job(job["id"]).wait(300)
    assert done.state == "succeeded", done.document
    assert done.builds[0]["attempts"] == 2


@pytest.mark.scaled
@pytest.mark.parametrize("fragile", ["scaled"], indirect=True)
def test_no_job_is_lost_when_everything_is(fragile: Deployment) -> None:
    running = fragile.post(graphs.dense(), "{}", wait=0).json()
    until(fragile.compiling, 60, "a compile process")
    queued = fragile.post(graphs.dense(seed=1), "{}", wait=0).json()
    fragile.kill()
    fragile.start()
    with fragile.client() as client:
        for job in (running, queued):
            done = client.job(job["id"]).wait(300)
            assert done.state == "succeeded", done.document
        assert len(client.jobs()) == 2
