"""Which of several values is the best beyond the noise of its measurement.

1. The epoch time lies between its 20th and its 80th percentile; with several seeds, between the lowest and the highest
   of theirs. A record has no percentiles of other times: they vary in the same proportion.
2. A loss, a metric or a process's memory lies within one standard deviation of the mean over the replicates: the seeds
   and the splits. One run tells nothing of them: its values are known to half a per cent.
3. What is counted, such as a cut, is exact, up to its standard deviation over the replicates.

A value is the best if its range does not overlap with that of any other run, its text differs from theirs, and no other
run is a replicate of this one: of replicates that are not shown by their mean, one is the best by chance.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from fullgnn.report.spread import Mean, high, low, std

Noise = Literal["clock", "sample", "count"]
"""How a quantity varies: the rules 1, 2 and 3."""
ONE_RUN = 0.005
"""Half a per cent: the precision of what one run learns."""


def epoch_range(record: dict[str, Any]) -> tuple[float, float]:
    """Where the epoch time of a run lies, in milliseconds: from its p20 to its p80."""
    times = record["epoch_time_ms"]
    median = times["median"]
    ends = [times.get(end) for end in ("p20", "p80")]
    return low(median if ends[0] is None else ends[0]), high(median if ends[1] is None else ends[1])


def value_range(value: float, noise: Noise, record: dict[str, Any]) -> tuple[float, float]:
    """Where a value of ``record`` lies, by the rules above."""
    if noise == "clock":
        median = record["epoch_time_ms"].get("median")
        shortest, longest = epoch_range(record) if median else (1.0, 1.0)
        return value * shortest / (median or 1), value * longest / (median or 1)
    around = std(value)
    if noise == "sample" and not isinstance(value, Mean):
        around = ONE_RUN * abs(value)
    return value - around, value + around


def best(
    values: Sequence[Any],
    texts: Sequence[str],
    records: Sequence[dict[str, Any]],
    noise: Noise,
    choose: Callable[..., Any],
    kinds: Sequence[tuple[str, str]] = (),
) -> int | None:
    """The place of the value that is the best beyond the noise; None if there is none.

    Args:
        values: a number of each run; anything else is left out.
        choose: ``min`` or ``max``.
        kinds: ``setting_and_draw`` of each run; without them, no run is a replicate of another.
    """
    known = [k for k, value in enumerate(values) if isinstance(value, (int, float))]
    if len(known) < 2:
        return None
    ranges = {k: value_range(values[k], noise, records[k]) for k in known}
    first: int = choose(known, key=lambda k: values[k])
    others = [k for k in known if k != first]
    setting, draw = kinds[first] if kinds else ("", "")
    if any(texts[k] == texts[first] or (kinds and kinds[k][0] == setting and kinds[k][1] != draw) for k in others):
        return None
    if choose is min:
        apart = ranges[first][1] < min(ranges[k][0] for k in others)
    else:
        apart = ranges[first][0] > max(ranges[k][1] for k in others)
    return first if apart else None
