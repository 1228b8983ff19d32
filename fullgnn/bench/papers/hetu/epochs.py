"""Table 4, table 5, figure 9 and figure 10: the time of an epoch, by library, by optimization, by order and by scheme.

Up to ``cfg.nproc`` ranks are real processes; larger layouts are simulated (``trainings.py``).
"""

import functools
import itertools
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

import numpy as np
import torch

from fullgnn.bench.epoch import Epochs
from fullgnn.bench.harness import Method, attempt, loss_error, measure, timed
from fullgnn.bench.papers import trainings
from fullgnn.bench.papers.batches import why_missing
from fullgnn.bench.papers.config import JobShape, Keys, published
from fullgnn.bench.papers.graphs import GraphCase, cases
from fullgnn.bench.papers.hetu.orders import NO_ORDER, OrdersKeys
from fullgnn.bench.papers.result import Bars, Cell, Result, TableRow, Value, bars, cells, with_label
from fullgnn.bench.peers import epoch_makers
from fullgnn.bench.problem import first_weights, make_problem
from fullgnn.config.keys import check_choices
from fullgnn.distributed import world_of_one
from fullgnn.engine.cuda_graph import EAGER_EPOCHS
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import split_tiles
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.statistics import whole_matrix


def thin_cases(cfg: Keys) -> list[GraphCase]:
    """The graphs, with as many of their first features as keep their share of an epoch: times ``degree_scale``."""
    thin = []
    for case in cases(cfg):
        features = case.graph.features[:, : max(1, round(case.graph.num_features * case.degree_scale))]
        if isinstance(features, np.ndarray):
            features = np.ascontiguousarray(features)  # no copy if these are all
        thin.append(replace(case, graph=replace(case.graph, features=features)))
    return thin


def say_links(result: Result, cfg: Keys) -> None:
    """Say below the table how the epochs of simulated layouts come about, if there are any."""
    links = trainings.load_links(cfg, cfg.layouts)
    result.notes += [] if links is None else [cfg.texts["simulated"].format(nproc=cfg.nproc, links=links)]


@dataclass
class TimedMethod:
    """A column of table 4: a ``peer`` of the benchmark, or the ``overrides`` of a run of ours."""

    title: str
    peer: Optional[str] = None
    overrides: list[str] = field(default_factory=list)


@dataclass
class HetuTable4Keys(Keys):
    """Table 4 has its columns as a key."""

    methods: list[TimedMethod]


def libraries(result: Result, cfg: HetuTable4Keys, case: GraphCase) -> None:
    """Fill a row for each layout. On several ranks ours run alone, one by one: a peer has one process."""
    trainings.load_links(cfg, cfg.layouts)  # fails here, before anything is timed
    result.columns = tuple(method.title for method in cfg.methods)
    for shape in cfg.layouts:
        # Our sources do not say on how many GPUs the paper's were measured.
        names = {"graph": case.dataset} if shape.p == 1 else {}
        if shape.p == 1:
            row, result.details[case.title] = _one_process(cfg, case, shape)
        else:
            ours = [method for method in cfg.methods if method.peer is None]
            jobs = {method.title: trainings.time_job(cfg, case, shape, method.overrides) for method in ours}
            row = {title: Cell(max(job.epoch_ms) / 1e3, unit="s", origin=job.origin) for title, job in jobs.items()}
        result.add((case.title, shape.name), row, cfg.base, **names)


def finish_libraries(result: Result, cfg: HetuTable4Keys) -> None:
    """Draw the speed-ups, and say how far the losses of the methods are apart."""
    others = [column for column in result.columns if column != cfg.base]
    result.panels += bars(f"{{1}}: speed-up over {cfg.base}", "speed-up", result.rows, others)
    errors = [error for of_case in result.details.values() for error in of_case["loss_error"].values()]
    if errors:
        result.notes.append(f"In one process the losses of the methods differ by {max(errors):.1e} at most.")
    say_links(result, cfg)


def _one_process(cfg: HetuTable4Keys, case: GraphCase, shape: JobShape) -> tuple[dict[str, Cell], dict[str, Any]]:
    """Time all methods, interleaved in this process from the same weights; return their cells and details."""
    device, missing, methods = cfg.torch_device, {}, []
    peers = {name: maker for of_library in epoch_makers("gcn").values() for name, maker in of_library.items()}
    problem = make_problem(case.graph, case.hidden, device)
    weights = first_weights(problem.widths, cfg.seed)
    check_choices("peer", [method.peer for method in cfg.methods if method.peer is not None], peers)
    with world_of_one(device) as world:
        for method in cfg.methods:
            if method.peer is None:
                run_cfg = trainings.run_config(cfg, case.hidden, *method.overrides, *shape.overrides())
                kind, make = "ours", functools.partial(Epochs, run_cfg, case.graph, world, weights)
            else:
                kind, make = "peer", functools.partial(peers[method.peer], problem, weights)
            step, _, reason = attempt(make, Exception if kind == "peer" else ())
            if reason is None:
                methods.append(Method(method.title, kind, timed(step, device)))
            else:
                missing[method.title] = why_missing(reason)
        warmup = max(cfg.warmup, EAGER_EPOCHS + 1) if cfg.device == "cuda" else cfg.warmup
        measurements, failed = measure(methods, world, trainings.num_epochs(cfg, case), warmup, cfg.budget_s)
    missing |= {method.method: method.reason for method in failed}
    times = {measurement.name: measurement for measurement in measurements}
    row = cells(missing) | cells({name: measurement.median_ms / 1e3 for name, measurement in times.items()}, "s")
    return {method.title: row[method.title] for method in cfg.methods}, {
        "times_ms": {name: measurement.times.ms for name, measurement in times.items()},
        "loss_error": {name: loss_error(measurement, times[cfg.base]) for name, measurement in times.items()},
        "missing": missing,
    }


SECONDS, PRODUCTS, DENSE = "epoch", "SpMM of an epoch", "non-zeros in dense tiles"


def thresholds(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Fill a row of epochs, one of their products, and one of what the threshold chooses."""
    prepared = trainings.prepare_job(cfg, case, trainings.ONE_RANK, cfg.choices)
    times, shares = dict[str, trainings.JobTimes](), dict[str, Value]()
    for threshold in cfg.thresholds:
        own, column = [*cfg.choices, f"kernel.density_threshold={threshold}"], f"{100 * threshold:g} %"
        times[column] = trainings.time_job(cfg, case, trainings.ONE_RANK, own, prepared)
        shares[column] = 100 * dense_share(prepared, threshold)
    rows = {
        SECONDS: cells({column: job.epoch_ms[0] / 1e3 for column, job in times.items()}, "s"),
        PRODUCTS: cells({column: job.spmm_ms[0] / 1e3 for column, job in times.items()}, "s"),
        DENSE: cells(shares, "%"),
    }
    for of, row in rows.items():
        result.add((case.title, of), row, "" if of == DENSE else next(iter(times)), of=of, graph=case.dataset)
    result.details[case.dataset] = [asdict(job) for job in times.values()]


def draw_thresholds(result: Result, cfg: Keys) -> None:
    """Draw the speed-ups of the epochs, and the shares of the non-zeros."""
    first = result.rows[0].cells
    title = f"{SECONDS}: speed-up over {next(iter(first))}"
    result.panels += bars(title, "speed-up", result.rows, list(first), label=SECONDS)
    result.panels += bars(DENSE, "%", result.rows, list(first), ("ours",), label=DENSE)


def dense_share(prepared: PreparedGraph, threshold: float) -> float:
    """Compute the fraction of the non-zeros that lie in tiles with more than ``threshold`` x 1024 of them."""
    matrix = whole_matrix(prepared, self_loops=True)
    indptr, indices = torch.from_numpy(matrix.indptr).int(), torch.from_numpy(matrix.indices)
    tiles, rest = split_tiles(LocalCSR(indptr, indices, None, *matrix.shape), threshold)
    return tiles.nnz / max(1, tiles.nnz + rest.nnz)


SCOPES = {"whole": "whole", "block": "blockwise"}


def orders_by_column(cfg: OrdersKeys) -> dict[str, tuple[str, str]]:
    """Order and scope of each column of figure 9."""
    both = itertools.product(cfg.orders, SCOPES)
    return {NO_ORDER: (NO_ORDER, "block")} | {f"{name.upper()} {SCOPES[scope]}": (name, scope) for name, scope in both}


def orders_by_scheme(result: Result, cfg: OrdersKeys) -> None:
    """Train each configuration a few epochs a round; its rounds are minutes apart."""
    links, columns = trainings.load_links(cfg, cfg.layouts), orders_by_column(cfg)
    rounds = [{case.title: time_case(cfg, case) for case in result.cases} for _ in range(cfg.rounds)]
    result.details = {"hardware": links and asdict(links), "times_ms": {case.title: {} for case in result.cases}}
    result.columns = tuple(columns)
    for case, shape in itertools.product(result.cases, cfg.layouts):
        of_rounds = [of_round[case.title][shape.name] for of_round in rounds]
        times = {column: trainings.fastest([of_round[column] for of_round in of_rounds]) for column in columns}
        for of in (trainings.SPMM, trainings.EPOCH):
            row, about = {}, {"dataset": case.dataset, "scheme": shape.scheme, "p": shape.p, "of": of}
            for column, (order, scope) in columns.items():
                paper = published(cfg.paper, "speedup", order=order, **about) if scope == cfg.paper_scope else None
                job = times[column]
                row[column] = replace(Cell(job) if isinstance(job, str) else job.cell(of), paper_ratio=paper)
            result.add((case.title, shape.name, of), row, NO_ORDER)
        recorded = {column: job if isinstance(job, str) else asdict(job) for column, job in times.items()}
        result.details["times_ms"][case.title][shape.name] = recorded
    result.panels += bars("{0}: {2}, speed-up over no order", "speed-up", result.rows, [*columns][1:], group=1)
    say_links(result, cfg)


def time_case(cfg: OrdersKeys, case: GraphCase) -> dict[str, dict[str, trainings.TimesOrReason]]:
    """Time one round, by layout and column; a text says why a column has no times.

    Layouts with as many block rows share the prepared graphs.
    """
    times: dict[str, dict[str, trainings.TimesOrReason]] = {shape.name: {} for shape in cfg.layouts}
    for column, (name, scope) in orders_by_column(cfg).items():
        own = [f"experiment={cfg.preset}", f"reorder={name}", f"reorder.scope={scope}"]
        prepared: dict[int, PreparedGraph] = {}
        for shape in cfg.layouts:
            try:
                if shape.num_parts not in prepared:
                    prepared[shape.num_parts] = trainings.prepare_job(cfg, case, shape, own, exact=True)
            except UnsupportedError as error:
                times[shape.name][column] = str(error)
            else:
                times[shape.name][column] = trainings.time_job(cfg, case, shape, own, prepared[shape.num_parts])
    return times


OFF, ON = "off", "on"


def block_sparse(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Time the products, the computation and the whole of an epoch for each layout, with dense tiles and without."""
    trainings.load_links(cfg, cfg.layouts)  # fails here, before anything is timed
    for shape in cfg.layouts:
        prepared = trainings.prepare_job(cfg, case, shape, cfg.choices)
        times = {
            column: trainings.time_job(cfg, case, shape, [*cfg.choices, *own], prepared)
            for column, own in ((OFF, cfg.plain), (ON, cfg.block_sparse))
        }
        for of in (trainings.SPMM, trainings.COMPUTATION, trainings.EPOCH):
            result.add((case.title, shape.name, of), {column: job.cell(of) for column, job in times.items()}, OFF)
        result.details[f"{case.dataset}, {shape.name}"] = {column: asdict(job) for column, job in times.items()}


def by_layout(of: str, rows: list[TableRow]) -> list[Bars]:
    """A panel of what the block-sparse product gains by layout, of the products or of the epoch."""
    graphs: dict[str, TableRow] = {}
    for row in with_label(rows, of):
        graphs.setdefault(row.labels[0], TableRow((row.labels[0], of), {})).cells[row.labels[1]] = row.cells[ON]
    return bars("{1}: speed-up by the block-sparse product", "speed-up", graphs.values(), heights=("ratio",))
