import resource
import subprocess
import sys

import pytest

from relaxd.http import descriptors

RAISED = """
import resource
from relaxd.http.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))
print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize("hard", [64, 500])
def test_the_soft_limit_is_raised_to_the_hard_one(hard):
    command = [sys.executable, "-c", RAISED.format(hard=hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(hard)] * 3


def test_a_process_is_not_given_a_million(monkeypatch):
    chosen = []
    unlimited = (1024, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: chosen.append(limits))
    assert descriptors.raise_limit() == descriptors.MOST
    assert chosen == [(descriptors.MOST, resource.RLIM_INFINITY)]


@pytest.mark.parametrize(("limit", "count"), [(20, 1), (1024, 384), (1 << 16, 32640)])
def test_connections_leave_room_for_other_files(limit, count):
    assert descriptors.connections(limit) == count
