"""A budget distributes its time, measured by a clock that the test moves."""

from fullgnn.bench.harness import Budget


def test_parts_are_of_what_is_left():
    now = [0.0]
    budget = Budget(100, clock=lambda: now[0])
    now[0] = 20
    assert budget.left == 80 and budget.elapsed == 20
    assert budget.part(0.5, reserved_s=20) == 30
    assert budget.part(0.5, most_s=7) == 7
    now[0] = 130
    assert budget.left == 0 == budget.part(1.0)
