from compiler.verify.time_budget import TimeBudget


def test_what_is_not_known_to_be_slow_may_start() -> None:
    assert TimeBudget(100).objection(10_000) is None


def test_one_run_says_nothing_of_a_larger_one() -> None:
    budget = TimeBudget(100)
    budget.took(10, 5)
    assert budget.objection(10_000) is None
    assert budget.objection(10_000, runs=30) is not None


def test_time_goes_on_growing_as_it_did() -> None:
    budget = TimeBudget(100)
    budget.took(10, 5)
    budget.took(110, 6)
    assert budget.objection(1110) is None
    assert "505" in (budget.objection(50_010) or "")


def test_nearly_equal_efforts_say_nothing_of_growth() -> None:
    budget = TimeBudget(100)
    budget.took(1000, 1)
    budget.took(1008, 2)
    assert budget.objection(2000) is None
    budget.took(2000, 52)
    assert "103.0" in (budget.objection(3000) or "")


def test_the_number_of_runs_counts() -> None:
    budget = TimeBudget(100)
    budget.took(10, 5)
    budget.took(110, 6)
    assert budget.objection(1110, runs=10) is not None


def test_no_time_left() -> None:
    assert TimeBudget(0).objection(0) is not None


def test_a_forecast_needs_runs_that_differ() -> None:
    budget = TimeBudget(100)
    assert budget.forecast([]) == 0.0
    assert budget.forecast([10]) is None
    budget.took(1000, 1)
    assert budget.forecast([1000, 900]) == 2.0
    assert budget.forecast([1000, 5000]) is None
    budget.took(2000, 2)
    assert budget.forecast([2000, 5000]) == 7.0


def test_seconds_of_another_clock() -> None:
    times = [0.0]
    budget = TimeBudget(10, lambda: times[0])
    times[0] = 4.0
    budget.took(10, 4.0)
    assert budget.left == 6.0
    assert budget.objection(10) is None
    times[0] = 8.0
    budget.took(10, 4.0)
    assert "of the time budget 2.0 s are left" in (budget.objection(10) or "")


def test_an_objection_says_what_its_seconds_are() -> None:
    budget = TimeBudget(10, unit="s of processor time")
    budget.took(10, 20.0)
    assert "about 20.0 s of processor time, of" in (budget.objection(10) or "")
