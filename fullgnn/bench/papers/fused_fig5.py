"""Figure 5 of Li et al. (2025): the pipeline of sampling, loading and training, simulated and measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.result import Curve, Result, cells, speedups
from fullgnn.bench.papers.sampled import OURS, SampledConfig, measure

SERIAL, OVERLAPPED = "loading and training in turn", "overlapped"
PRODUCER = ("sample", "gather", "pack")
"""Steps that a worker does; the rank does the others."""


@dataclass
class Config(SampledConfig):
    """Keys of ``conf/experiment/reproduce/fused_fig5.yaml``."""

    counts: list[int] = field(default_factory=list)
    """Numbers of batches n of the model."""
    stations: dict[str, list[float]] = field(default_factory=dict)
    """Pipeline -> times of its stations, in t."""


def run(cfg: Config) -> Result:
    """Simulate both pipelines of the paper, and measure ours with and without a worker."""
    result = Result(("what", "batches"), (SERIAL, OVERLAPPED), cases=cases(cfg), notes=cfg.notes)
    for n in cfg.counts:
        paper = {SERIAL: 3 * n + 1, OVERLAPPED: 2 * n + 4}
        times = {name: makespan(own, n) for name, own in cfg.stations.items()}
        result.add(("model", f"n={n}"), cells(times, paper, "t", "simulated"))
    for case in result.cases:
        _add_case(result, cfg, case)
    numbers = range(1, max(cfg.counts) + 1)
    curves = [
        Curve(name, [float(n) for n in numbers], [makespan(own, n) for n in numbers])
        for name, own in cfg.stations.items()
    ]
    result.draw("the pipeline's model", "batches n", "t", curves)
    return result


def _add_case(result: Result, cfg: Config, case: Case) -> None:
    """The time of a batch of ours without a worker and with one, measured, and as the model predicts the latter."""
    alone, ahead = (measure(cfg, case, "minibatch", workers=workers) for workers in (0, 1))
    steps = {name: ms for name, ms in ahead.details[OURS]["steps_ms"].items() if name not in ("epoch", "wait")}
    worker_ms = sum(ms for name, ms in steps.items() if name in PRODUCER)
    rank_ms = sum(ms for name, ms in steps.items() if name not in PRODUCER)
    long = 100
    each_ms = makespan([worker_ms, rank_ms], 2 * long) - makespan([worker_ms, rank_ms], long)
    simulated = cells({SERIAL: worker_ms + rank_ms, OVERLAPPED: each_ms / long}, unit="ms", origin="simulated")
    result.add((case.title, "each"), speedups({SERIAL: alone.cell(OURS), OVERLAPPED: ahead.cell(OURS)}, SERIAL))
    result.add((case.title, "each, from its steps"), speedups(simulated, SERIAL))
    result.details[case.title] = {
        name: times.details[OURS]["steps_ms"] for name, times in (("alone", alone), ("ahead", ahead))
    }


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
