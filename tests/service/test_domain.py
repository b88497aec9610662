"""A job's state follows from its builds'."""

from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.states import State
from service.domain import job_state

STATES = st.lists(st.sampled_from(list(State)), min_size=1, max_size=6)


@given(states=STATES)
def test_the_promises(states: list[State]) -> None:
    result = job_state(states)
    assert result.terminal == all(state.terminal for state in states)
    assert (result is State.QUEUED) == all(state is State.QUEUED for state in states)
    assert (result is State.SUCCEEDED) == all(state is State.SUCCEEDED for state in states)
    assert result is job_state(list(reversed(states)))
    if result.terminal:
        assert result in states


def test_one_failure_decides_only_at_the_end() -> None:
    assert job_state([State.FAILED, State.RUNNING]) is State.RUNNING
    assert job_state([State.FAILED, State.QUEUED]) is State.RUNNING
    assert job_state([State.CANCELLED, State.FAILED, State.SUCCEEDED]) is State.FAILED
    assert job_state([State.CANCELLED, State.TIMED_OUT]) is State.TIMED_OUT
