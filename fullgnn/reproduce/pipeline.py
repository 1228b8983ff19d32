"""How long stations in a row take for some batches, each station working on one batch at a time."""

from collections.abc import Sequence


def makespan(stations: Sequence[float], num_batches: int, slots: int = 1) -> float:
    """The time until the last of ``num_batches`` has left the last station.

    Args:
        stations: time that each station takes for a batch.
        slots: finished batches that may wait between two stations; a station whose batch finds no free slot waits.
    """
    left = [[0.0] * num_batches for _ in stations]  # when each batch leaves each station
    for batch in range(num_batches):
        for k, time in enumerate(stations):
            arrived = left[k - 1][batch] if k else 0.0
            free = left[k][batch - 1] if batch else 0.0
            done = max(arrived, free) + time
            if k + 1 < len(stations) and batch > slots:  # the next station has taken an earlier batch by then
                done = max(done, left[k + 1][batch - slots - 1])
            left[k][batch] = done
    return left[-1][-1]
