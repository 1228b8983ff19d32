"""A budget distributes its time, measured by a clock that the test moves."""

from fullgnn.bench.gpu.worker import Budget


def test_parts_are_of_what_is_left():
    now = [0.0]
    budget = Budget(100, clock=lambda: now[0])
    now[0] = 20
    assert budget.left == 80 and budget.elapsed == 20
    part = budget.part(0.5, reserved_s=20)
    assert part.left == 30 and part.allows(30) and not part.allows(31)
    assert budget.part(0.5, most_s=7).left == 7
    now[0] = 45
    assert part.left == 5
    now[0] = 130
    assert budget.left == part.left == 0 and not budget.allows(1) and budget.part(1.0).left == 0
