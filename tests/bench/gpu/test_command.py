"""The command ``./launch/gpu_bench`` in Triton's interpreter: whole runs, stopped runs and refused options."""

import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest
import torch

from fullgnn.bench.config import BenchConfig, load_bench
from fullgnn.bench.gpu.__main__ import MINUTES, check_options, parse
from fullgnn.bench.gpu.checks import NAMED, WAYS
from fullgnn.bench.gpu.parts import NOT_MEASURED, PARTS, WARMUP, BenchPart, kept, plan_keys
from fullgnn.bench.gpu.products import CONTESTANTS, FIRST
from fullgnn.bench.gpu.sweep import TUNING_FILE
from fullgnn.bench.papers.config import load_target, split_arguments
from fullgnn.errors import FullGNNError
from fullgnn.graph.lookalikes import LOOKALIKES
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.tuning import Tuning, read_tuning
from fullgnn.plan import load_plan
from tests.commands import ROOT

ABSENT = ("pymetis", "tqdm", "networkx", "sklearn", "pytest")
COMMAND = [str(ROOT / "launch" / "gpu_bench")]

pytestmark = pytest.mark.timeout(900)  # the first test of a toy run waits for all of its parts
PRESETS = ["full", "hetu", "full runtime.cuda_graph=never", "full optimizations.offload=always"]
NAIVE = "torch CSR (AH)W + own backward"


SITE = """
import importlib.util, sys
absent, find_spec = {absent!r}, importlib.util.find_spec
sys.modules.update(dict.fromkeys(absent))
importlib.util.find_spec = lambda name, *rest: None if name in absent else find_spec(name, *rest)
"""


def bare_environment(tmp_path, absent=ABSENT, name="bare", interpret="1"):
    """Environment variables with which Python behaves as if the modules ``absent`` were not installed."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "sitecustomize.py").write_text(SITE.format(absent=absent))
    own = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / name), "TRITON_INTERPRET": interpret}
    return {**os.environ, **own}


def read(folder, part):
    return json.loads((folder / f"{part}.json").read_text())


def results(record):
    """What is kept of each command, by its title; of several with one title, a list."""
    left = {}
    for entry in record["commands"]:
        left.setdefault(entry["title"], []).append(entry["result"])
    return {title: results[0] if len(results) == 1 else results for title, results in left.items()}


@pytest.fixture(scope="module")
def parts(request):
    """The parts of the toy run: with --all every one, otherwise that which measures the kernels."""
    return PARTS if request.config.getoption("--all") else ("products",)


@pytest.fixture(scope="module")
def toy(tmp_path_factory, parts):
    """The folder of a toy run of ``parts``. The part products runs without the modules ``ABSENT``."""
    tmp_path = tmp_path_factory.mktemp("toy")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    full = bare_environment(tmp_path, (), "full")
    tuned = ["epochs", "--tuning", str(tmp_path / "found" / TUNING_FILE)]
    # Commands at the same time take less; the part epochs reads the constants that products found.
    first = [(["checks"], full), (["products"], bare_environment(tmp_path))]
    for every in (first, [(tuned, full), (["models"], full), (["ranks"], full)]):
        running = [
            subprocess.Popen([*COMMAND, *"--toy --out found --part".split(), *own], env=env, cwd=tmp_path, **output)
            for own, env in every
            if own[0] in parts
        ]
        outputs = [process.communicate(timeout=600)[0] for process in running]
        assert not any(process.returncode for process in running), "\n".join(outputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "found", "full"]
    return tmp_path / "found"


@pytest.mark.sample(4, "toy")
def test_a_toy_run_leaves_a_few_small_files(toy, parts):
    names = [f"{part}.{kind}" for part in parts for kind in ("json", "md")]
    assert sorted(path.name for path in toy.iterdir()) == sorted([*names, "tuning.yaml"])
    for part in parts:
        record = read(toy, part)
        assert record["finished"] and record["run"]["times"] == NOT_MEASURED and record["run"]["part"] == part
        assert NOT_MEASURED in (toy / f"{part}.md").read_text()
        left_out = [entry["title"] for entry in record["commands"] if entry["state"] != "done"]
        assert left_out == (["Reproduced"] if part == "epochs" else [])
        missing = [absent["method"] for entry in record["commands"] for absent in entry["result"].get("missing", [])]
        assert all(name.startswith(("PyG", "ncu", "compute-sanitizer", *NAMED)) for name in missing), missing
    assert max(path.stat().st_size for path in toy.iterdir()) < 300_000
    assert read_tuning(toy / "tuning.yaml") == Tuning()  # nothing was measured, so every constant keeps its default


@pytest.mark.sample(0)
def test_a_toy_run_checks_ranks_and_says_what_is_missing(toy):
    """The record and the page list every module of ``NAMED``, as passed or as missing."""
    record = results(read(toy, "checks"))["Checks"]
    assert all(check["passed"] for check in record["checks"])
    missing = [absent["method"] for absent in record["missing"]]
    passed = [check["subject"] for check in record["checks"]]
    assert passed[0] == "pytest" and any(name.startswith("tests.gpu.test_ranks") for name in passed)
    page = (toy / "checks.md").read_text()
    assert all(any(name.startswith(module) for name in passed + missing) for module in NAMED)
    assert all(name in page for name in passed + missing)


@pytest.mark.sample(4, "toy")
def test_a_toy_run_multiplies_and_sweeps(toy, monkeypatch):
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    left = results(read(toy, "products"))
    assert [row["method"] for row in left["Rates"]["measurements"]] == ["copy", *["gather"] * 4, *["gemm"] * 3]
    assert left["Rates"]["measurements"][0]["details"]["gb_per_s"] == NOT_MEASURED
    graph, rows = left["toy: products"]["problem"], left["toy: products"]["measurements"]
    assert graph["num_nodes"] == 96 and graph["nnz"] == 768 and ">25 %: 0.000" in graph["tile_density"]
    assert graph["order"] == "the generator's communities" and "not installed" in graph["order_reason"]
    able = [contestant.name for contestant in FIRST if contestant.missing(torch.device("cpu")) is None]
    assert [(row["method"], row["case"]) for row in rows] == [
        (name, {"width": 8}) for name in (*able, "torch, shuffled graph")
    ]
    for row in rows:
        details = row["details"]
        assert details["correct"] and details["error"] <= CONTESTANTS[row["method"].partition(",")[0]].tolerance
        assert row["median_ms"] == row["ratio"] == details["of_gather_rate_per_s"] == NOT_MEASURED
        assert details["num_inputs"] >= 2 and details["beside_mb"] >= 0
    swept = left["toy: sweep"]["measurements"]
    assert {row["details"]["section"] for row in swept} >= {"csr", "dense"}
    assert all(row["details"]["correct"] and row["median_ms"] == NOT_MEASURED for row in swept)
    changed = [row["details"]["changed"] for row in swept]
    assert {} in changed and any(changed)


@pytest.mark.sample(0)
def test_a_toy_run_trains(toy):
    record = read(toy, "epochs")
    assert "No GPU has measured" in record["run"]["tuning"]  # epochs used the file that products wrote
    left = results(record)
    rows = {(row["method"], row["case"]["dropout"]): row for row in left["toy: epochs"]["measurements"]}
    assert set(rows) >= {(preset, p) for preset in (NAIVE, *PRESETS) for p in (0.0, 0.5)}
    assert all(rows[preset, 0.0]["details"]["loss_error"] < 1e-4 for preset in (NAIVE, *PRESETS))
    assert rows["hetu", 0.5]["details"]["loss_error"] < 1e-4 and rows[NAIVE, 0.5]["details"]["loss_error"] is None
    assert rows["full", 0.5]["values"] != rows["full", 0.0]["values"]
    assert rows[PRESETS[3], 0.0]["details"]["settings"]["offload"] == "always"
    assert len(rows[NAIVE, 0.0]["values"]) == 8 and rows[NAIVE, 0.0]["values"][-1] < rows[NAIVE, 0.0]["values"][0]
    caches = [rows[preset, 0.0]["details"]["settings"]["cache_aggregation"] for preset in ("full", "hetu")]
    assert caches == [True, False]
    launches = [rows["full", p]["details"]["launches"] for p in (0.0, 0.5)]
    assert all(table["busy_ms"] == NOT_MEASURED and table["kernels"][0]["launches"] > 0 for table in launches)
    assert [option["world_size"] for option in left["toy: the plan"]["plan"]] == [1, 2, 4, 8]


@pytest.mark.sample(0)
def test_a_toy_run_measures_models_and_ranks(toy):
    """Every method has a row; a job ends whose rank raises or is killed, and its losses do not depend on its ranks."""
    models, ranks = results(read(toy, "models")), results(read(toy, "ranks"))
    assert models["GAT"]["measurements"][0]["method"] == "default"
    assert [row["method"] for row in models["sampled GraphSAGE"]["measurements"]] == ["ours"]
    checks = ranks["How a job ends"]["checks"]
    assert [(check["what"], check["passed"]) for check in checks] == [(f"one {way}", True) for way in WAYS]
    title = "Epochs by number of ranks: tiny"
    rows = [row for result in ranks[title] for row in result["measurements"]]
    losses = [row["details"]["last_loss"] for row in rows]
    assert [row["processes"] for row in rows] == [1, 1, 2, 2] and max(losses) < 1.001 * min(losses)
    page = (toy / "ranks.md").read_text()
    assert page.count(f"## {title}") == 1


def test_without_hydra_it_says_so(tmp_path):
    """The reason is one line, before anything begins."""
    env = bare_environment(tmp_path, ("hydra", "omegaconf"))
    done = subprocess.run([*COMMAND, "--toy"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "error: hydra-core is not installed: pip install hydra-core"


def configured(words):
    """The configuration of a command of fullgnn."""
    module, keys = words[2], words[3:]
    if module == "fullgnn.reproduce":
        (target,), _, own = split_arguments(keys)
        return load_target(target, *own)
    return load_bench(*keys) if module == "fullgnn.bench" else load_plan(keys)[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PARTS)
def test_every_command_of_a_part_is_known_and_has_time(tmp_path, monkeypatch, name):
    """The commands are those of a machine with eight GPUs, in order, within the time of their part."""
    (tmp_path / "tuning.yaml").touch()
    options = parse(["--out", str(tmp_path), "--tuning", str(tmp_path / "tuning.yaml")])

    def commands(num_gpus):
        """The titles, arguments, seconds and folders of the commands, and the part."""
        ran = []

        def execute(self, title, *arguments):
            self.add(title, state="done")["result"] = {"problem": {"scale": 0.5}}
            ran.append((title, *arguments))

        monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
        monkeypatch.setattr(BenchPart, "execute", execute)
        part = BenchPart(name, options, tmp_path)
        part.run()
        return *zip(*ran), part

    titles, arguments, seconds, folders, _ = commands(8)
    assert all(0 < most <= 60 * MINUTES[name] for most in seconds)
    configurations = [cfg for cfg in map(configured, arguments) if isinstance(cfg, BenchConfig)]
    assert all(cfg.device == "cuda" and cfg.limit_s > 5 for cfg in configurations)
    assert len(set(folders)) == len(titles)
    graphs = [title.partition(":")[0] for title in titles if title.partition(":")[0] in LOOKALIKES]
    if name == "checks":
        assert titles == ("Checks",)
    elif name == "products":
        assert graphs == [graph for graph in LOOKALIKES for _ in range(2)] and titles[0] == "Rates"
        assert configurations[-1].op == "hits" and configurations[-1].scale == 0.5
        assert configurations[1].rates == str(folders[0] / "record.json")
    elif name == "epochs":
        assert graphs == [*LOOKALIKES, *LOOKALIKES] and titles[-1] == "Reproduced: fused_fig7"
        assert configurations[0].tuning == str(tmp_path / "tuning.yaml") and configurations[0].presets == PRESETS
        assert "device=cuda" in arguments[-1] and "target=fused_fig7" in arguments[-1]
    else:
        assert all(cfg.warmup == WARMUP > 5 for cfg in configurations)
        assert [cfg.nproc for cfg in configurations] == ([1] * 5 if name == "models" else [1, 1, 2, 4, 8, 1, 2, 4, 8])
    alone, *_, part = commands(1)
    assert name != "ranks" or (alone == ("How a job ends",) and "there is one GPU here" in str(part.tree["commands"]))
    options.toy = True
    assert all(getattr(configured(words), "device", "cpu") == "cpu" for words in commands(1)[1])


@pytest.mark.sample(4)
@pytest.mark.parametrize("stop", ["kill", "terminate"])
def test_what_was_found_outlives_the_run(tmp_path, stop):
    """The test stops the process after the first rate, while the process measures others."""
    command, env = [*COMMAND, *"--toy --part products --out found".split()], bare_environment(tmp_path)
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)
    folder, page = tmp_path / "found", tmp_path / "found/products.md"
    begin = time.monotonic()
    while not (page.exists() and "## Rates" in page.read_text() and read(folder, "products")["commands"]):
        assert process.poll() is None and time.monotonic() - begin < 150
        time.sleep(0.05)
    getattr(process, stop)()
    process.wait(timeout=20)
    record = read(folder, "products")
    assert not record["finished"] and record["commands"][0]["result"]["measurements"]
    assert "## Rates" in page.read_text() and not (folder / "checks.json").exists()


def test_the_plan_is_asked_and_read(tmp_path):
    """Each world size has its fastest option that fits the memory, and the configuration accepts the plan's command."""
    options = [
        {"world_size": size, "epoch_time_ms": ms, "prediction": {"peak_tensor_bytes": peak, "memory_bytes": 10}}
        for size, ms, peak in ((1, 8.0, 5), (2, 4.0, 5), (2, 3.0, 50), (2, 5.0, 5))
    ]
    assert kept(tmp_path) == {}
    (tmp_path / "plan.json").write_text(json.dumps(options))
    rows = [{"world_size": 1, "predicted_epoch": "8 ms"}, {"world_size": 2, "predicted_epoch": "4 ms"}]
    assert kept(tmp_path) == {"plan": rows}
    words = shlex.split(plan_keys(LOOKALIKES["reddit-like"], 1.0))
    assert {"num_nodes=232965", "num_edges=114615892", "hardware=h200x8", "experiment=full"} <= set(words)
    plan, runs, graph = load_plan([*words, f"out={tmp_path}"])  # every key is known
    assert plan.nproc == [1, 2, 4, 8] and graph.num_nodes == 232_965 and runs


UNREAD = "no.yaml cannot be read: [Errno 2] No such file or directory: 'no.yaml'"
REFUSED = [
    ("--toy", "0", "--toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1"),
    ("", "1", "TRITON_INTERPRET=1 measures nothing: unset it, or give --toy"),
    ("--toy --tuning no.yaml", "1", UNREAD),
]


@pytest.mark.parametrize(("arguments", "interpret", "message"), REFUSED)
def test_it_refuses_before_anything_begins(monkeypatch, arguments, interpret, message):
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    with pytest.raises(FullGNNError, match=re.escape(message)):
        check_options(parse(arguments.split()))


def test_it_refuses_with_one_line(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    env = bare_environment(tmp_path, interpret="0")
    done = subprocess.run(COMMAND, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    message = "error: no GPU is visible here, and there is nothing to measure without one"
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [("", [*MINUTES]), ("--part ranks --part checks", ["checks", "ranks"]), ("--part all products", [*MINUTES])],
)
def test_parts_come_in_their_order(arguments, names):
    assert parse(arguments.split()).part == names
    assert [*MINUTES] == [*PARTS] == ["checks", "products", "epochs", "models", "ranks"]
    assert max(MINUTES.values()) < 10


def test_nothing_that_may_be_absent_is_imported():
    """The list includes numba, which only kernels for CPUs need; Triton and Hydra are there."""
    rooms = {path.stem for path in (ROOT / "fullgnn" / "bench" / "gpu").glob("*.py")} - {"__init__", "_gather_gpu"}
    program = f"import sys; sys.modules.update(dict.fromkeys({(*ABSENT, 'numba', 'torch_geometric')!r}))\n"
    program += "\n".join(f"import fullgnn.bench.gpu.{room}" for room in sorted(rooms))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
