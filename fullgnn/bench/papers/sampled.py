"""Batches of sampled training, measured by ``python -m fullgnn.bench``, for the targets of Li et al. (2025)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from fullgnn.bench.__main__ import start
from fullgnn.bench.config import load_bench
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.jobs import load_links
from fullgnn.bench.papers.result import Cell, Origin
from fullgnn.config.overrides import quote
from fullgnn.storage.folder import temporary_folder

OURS, DGL, PYG = "ours", "DGL", "PyG"


@dataclass
class SampledConfig(TargetConfig):
    """The keys of ``conf/reproduce_fused.yaml``, which explains them; a target adds its own."""

    fanouts: list[int] = MISSING
    batch_size: int = MISSING
    batches: int = MISSING
    rounds: int = MISSING
    peers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """What one benchmark has found."""

    ms: dict[str, float]  # of a batch, by method
    details: dict[str, dict[str, Any]]  # by method
    missing: dict[str, str]  # reason, by method
    num_batches: int  # of an epoch, on each rank
    times_ms: dict[str, list[float]]

    def cell(self, method: str, scale: float = 1.0, unit: str = "ms", **others: Any) -> Cell:
        """The time of a batch, times ``scale``; or why there is none."""
        if method not in self.ms:
            return Cell(self.missing.get(method, "not measured"), unit=unit, **others)
        return Cell(self.ms[method] * scale, unit=unit, **others)

    def record(self, method: str) -> dict[str, Any]:
        """What the record of a target keeps of a method of ours, whose name is that of its preset."""
        details = {key: value for key, value in self.details.get(method, {}).items() if key != "losses"}
        return {"preset": method, "times_ms": self.times_ms.get(method), **details}


_KNOWN: dict[tuple[object, ...], Measured] = {}
"""What this process has measured: targets of one command share it."""


def measure(
    cfg: SampledConfig,
    case: Case,
    op: str,
    nproc: int = 1,
    batch_size: int | None = None,
    workers: int = 0,
    presets: Sequence[str] = (),
) -> Measured:
    """Run the benchmark ``op`` on the graph of ``case``, in processes of its own.

    Args:
        presets: of ours, as ``conf/bench.yaml`` explains; the name of each is that of its method.
    """
    keys = {
        "op": op,
        "graph": "npz",
        "hidden": case.hidden,
        "nproc": nproc,
        "threads": cfg.threads,
        "device": cfg.device,
        "seed": cfg.seed,
        "fanouts": f"[{','.join(map(str, cfg.fanouts))}]",
        "batch_size": batch_size or cfg.batch_size,
        "batches": cfg.batches,
        "rounds": cfg.rounds,
        "workers": workers,
        "peers": f"[{','.join(cfg.peers)}]",
        "presets": f"[{','.join(map(quote, presets))}]" if presets else "null",
    }
    known = (case.dataset, case.real, case.scale, case.degree_scale, *keys.values())
    if known not in _KNOWN:
        with temporary_folder() as folder:
            case.graph.save(folder / "graph.npz")
            path = quote(str(folder / "graph.npz"))
            arguments = [f"{key}={value}" for key, value in keys.items()]
            arguments += [f"overrides=[{quote(f'dataset.path={path}')}]", f"out={quote(str(folder / 'out'))}"]
            start(load_bench(*arguments), arguments)
            _KNOWN[known] = _read(folder / "out" / "record.json")
    return _KNOWN[known]


def _read(path: Path) -> Measured:
    record = json.loads(path.read_text())
    found = {one["method"]: one for one in record["measurements"]}
    missing = {one["method"]: why_missing(one["reason"]) for one in record["missing"]}
    return Measured(
        {name: one["median_ms"] for name, one in found.items()},
        {name: one["details"] for name, one in found.items()},
        missing,
        record["problem"]["num_batches"],
        {name: one["times_ms"] for name, one in found.items()},
    )


def why_missing(reason: str) -> str:
    """The reason why a library has no times, in the words of a table."""
    if "ModuleNotFoundError" in reason:
        return "not installed"
    return "its sampler is not installed" if "requires either 'pyg-lib' or 'torch-sparse'" in reason else reason


def epoch_cells(
    cfg: SampledConfig,
    links: str,
    case: Case,
    p: int,
    batch_size: int | None = None,
    paper: Mapping[str, Any] | None = None,
) -> dict[str, Cell]:
    """The seconds of an epoch on ``p`` ranks by method, measured up to ``cfg.nproc`` ranks and simulated beyond.

    A simulated rank takes as long for a batch as the only rank of a measured job, and then waits for the AllReduce of
    its gradients, by the planner's model of the links.

    Args:
        links: the profile whose links a simulated job has.
        paper: the paper's seconds, by method.
    """
    assert cfg.nproc is not None
    simulates = p > cfg.nproc
    times = measure(cfg, case, "minibatch", 1 if simulates else p, batch_size)
    num_batches, waiting_ms = times.num_batches, 0.0
    if simulates:
        num_batches = math.ceil(times.num_batches / p)
        hardware = load_links(cfg, links, [JobShape("1d", p, 1)])
        assert hardware is not None
        all_reduce = replace(hardware, ranks_per_node=p).link("all_reduce", p)
        waiting_ms = 1e3 * all_reduce.time_s(times.details[OURS]["parameter_bytes"])
    origin: Origin = "simulated" if simulates else "measured"
    cells = {}
    for name in (DGL, PYG, OURS):
        cells[name] = times.cell(name, unit="s", paper=(paper or {}).get(name), origin=origin)
        if name in times.ms:
            cells[name] = replace(cells[name], ours=(times.ms[name] + waiting_ms) * num_batches / 1e3)
    return cells
