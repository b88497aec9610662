from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.states import TRANSITIONS, State


def test_every_state_is_in_the_table():
    assert TRANSITIONS.keys() == set(State)


def test_terminal_states():
    assert {state for state in State if state.terminal} == {
        State.SUCCEEDED,
        State.FAILED,
        State.CANCELLED,
        State.TIMED_OUT,
    }


@given(st.lists(st.sampled_from(State), max_size=12))
def test_no_walk_leaves_a_terminal_state_or_stands_still(wishes):
    state = State.QUEUED
    for wish in wishes:
        assert not state.may_become(state)
        if state.may_become(wish):
            assert not state.terminal
            state = wish


def test_every_state_can_be_reached_and_can_end():
    reached, frontier = set(), {State.QUEUED}
    while frontier:
        reached |= frontier
        frontier = {after for state in frontier for after in TRANSITIONS[state]} - reached
    assert reached == set(State)
    assert all(
        state.terminal or any(after.terminal for after in TRANSITIONS[state]) for state in State
    )
