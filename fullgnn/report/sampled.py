"""The section of sampled training: the time of an epoch by the steps of its batches, and what they read."""

from collections.abc import Iterator, Mapping

from fullgnn.report.content import COUNT, RATIO, Block, Table, missing
from fullgnn.report.plots import plot_by_run
from fullgnn.report.runs import Run
from fullgnn.report.spread import shown

STEPS = {
    "cache": "choose rows to keep",
    "sample": "sample",
    "gather": "gather features",
    "pack": "pack",
    "wait": "wait",
    "load": "load",
    "forward": "forward",
    "backward": "backward",
    "comm": "communication",
    "update": "update",
}
"""The steps of an epoch, as the record and as the page name them."""
IN_WORKERS = ("sample", "gather", "pack")
COUNTS = {
    "num_batches": ("batches of an epoch", COUNT),
    "sampled_edges": ("drawn edges of an epoch", COUNT),
    "sampled_edges_per_s": ("drawn edges per second", COUNT),
    "input_rows": ("rows of features that an epoch reads", COUNT),
    "fetched_bytes": ("bytes of features that an epoch fetches", COUNT),
    "filled_bytes": ("bytes of features that the cache changes in an epoch", COUNT),
    "hit_rate": ("share of these rows that are on the device", RATIO),
}
"""What else the record has of an epoch, as the page names and writes it."""


def sampled_training(runs: list[Run]) -> Iterator[Block]:
    """A bar for each run, made of the steps of its busiest rank, and their numbers."""
    found = {run: run.record["sampling"] for run in runs if run.record.get("sampling")}
    stacks = [_of_the_rank(one["time_ms"]) for one in found.values()]
    parts = {name: [stack.get(step, 0.0) for stack in stacks] for step, name in STEPS.items()}
    parts = {name: heights for name, heights in parts.items() if any(heights)}
    names, wholes = [run.name for run in found], [sum(stack.values()) for stack in stacks]
    lengths = "; ".join(f"{name} {whole:.2f} ms" for name, whole in zip(names, wholes))
    alt = f"Time of an epoch of sampled training by the steps of its batches: {lengths}."
    yield "plot", plot_by_run("steps", "time of an epoch by step", alt, list(found), parts, "ms")
    times = [[f"{name}, ms", *(shown(one["time_ms"].get(step), RATIO) for one in found.values())]
             for step, name in STEPS.items()]  # fmt: skip
    counts = [[label, *(shown(one.get(key), show) for one in found.values())] for key, (label, show) in COUNTS.items()]
    yield "numbers", Table("An epoch of sampled training", ["", *names], [*times, *counts])
    yield from missing(runs, found, "the steps of sampled training")


def _of_the_rank(times: Mapping[str, float]) -> dict[str, float]:
    """The steps that the rank does itself: where it waits for workers, theirs are beside its own."""
    theirs = IN_WORKERS if times.get("wait") else ()
    return {step: ms for step, ms in times.items() if step not in theirs}
