"""``./launch/gpu_bench`` as it is started, on the interpreter: whole, cut short, and refused."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from fullgnn import gpu
from fullgnn.bench.gpu.contestants import AUTO, CONTESTANTS, FIRST
from fullgnn.bench.gpu.epoch import LATER, OURS
from fullgnn.bench.gpu.record import NOT_MEASURED
from tests.commands import ROOT

ABSENT = ("hydra", "omegaconf", "pymetis", "tqdm", "networkx", "sklearn", "pytest")
COMMAND = [str(ROOT / "launch" / "gpu_bench")]


@pytest.fixture
def bare(tmp_path):
    """The environment of a machine that has little installed: imports of ``ABSENT`` fail."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n")
    return {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(folder)}


def read(folder):
    return json.loads((folder / "record.json").read_text())


def test_a_toy_run_end_to_end(bare, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    env = {**bare, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [*COMMAND, "--toy", "--out", "found"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "found"]
    record = read(tmp_path / "found")
    assert record["finished"] and record["run"]["times"] == NOT_MEASURED

    present = {
        name: one for name, one in CONTESTANTS.items() if one.missing(torch.device("cpu")) is None and one != AUTO
    }
    checks = record["checks"]
    assert all(check["passed"] for check in checks)
    assert {f"{check['kernel']} {check['mode']}" for check in checks} == set(present)
    assert {check["what"] for check in checks} == {"product", "epilogue", "repeats"}
    assert record["rates"]["copy_gb_s"] == NOT_MEASURED and len(record["rates"]["gather"]) == 4

    graph = record["graphs"]["toy"]
    assert graph["num_nodes"] == 160 and graph["nnz"] == 2560
    assert graph["order"] == "the generator's communities" and "not installed" in graph["order_reason"]
    assert sum(graph["tile_density"]) == pytest.approx(1)
    found = {(f"{one['kernel']} {one['mode']}", one["width"]): one for one in graph["spmm"]}
    first = {one.name for one in FIRST if one.name in present}
    assert set(found) == {(name, 8) for name in present} | {(name, 41) for name in first}
    for (name, _), one in found.items():
        assert one["correct"] and one["error"] <= CONTESTANTS[name].tolerance
        assert one["median_ms"] == one["share_of_gather_rate"] == NOT_MEASURED and one["num_inputs"] >= 2
    assert len(graph["spmm_shuffled"]) == 1

    epochs = {one["preset"]: one for one in graph["epoch"]}
    assert set(epochs) >= {"naive", *OURS, *LATER}
    assert all(epochs[preset]["loss_error"] < 1e-4 for preset in (*OURS, *LATER))
    assert epochs["full, A H0 on the host"]["settings"]["offload"] == "always"
    assert epochs["naive"]["losses"][-1] < epochs["naive"]["losses"][0]
    assert epochs["full"]["settings"]["cache_aggregation"] and not epochs["hetu"]["settings"]["cache_aggregation"]
    failed = [entry for entry in record["items"] if entry["state"] == "failed"]
    assert all("PyG" in entry["item"] for entry in failed), failed

    page = (tmp_path / "found" / "summary.md").read_text()
    assert "## toy" in page and NOT_MEASURED in page and "checks" in done.stdout
    assert (tmp_path / "found" / "record.json").stat().st_size < 1_000_000


@pytest.mark.parametrize("stop", ["kill", "terminate"])
def test_what_was_found_outlives_the_run(bare, tmp_path, stop):
    env = {**bare, "TRITON_INTERPRET": "1"}
    process = subprocess.Popen([*COMMAND, "--toy", "--out", "found"], env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)
    found, page = tmp_path / "found", tmp_path / "found/summary.md"
    begin = time.monotonic()
    while not (page.exists() and "## Checks" in page.read_text() and read(found)["items"]):
        assert process.poll() is None and time.monotonic() - begin < 100
        time.sleep(0.05)
    getattr(process, stop)()
    process.wait(timeout=20)
    record = read(found)
    assert not record["finished"] and record["checks"] and record["items"]
    assert "## Checks" in page.read_text()


@pytest.mark.parametrize(
    "arguments, interpret, message",
    [
        ([], "0", "error: no GPU is visible here, and there is nothing to measure without one"),
        (["--toy"], "0", "error: --toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1"),
        ([], "1", "error: TRITON_INTERPRET=1 measures nothing: unset it, or give --toy"),
    ],
)
def test_it_refuses_with_one_line(bare, tmp_path, arguments, interpret, message):
    if torch.cuda.is_available() and "no GPU" in message:
        pytest.skip("there is a GPU")
    env = {**bare, "TRITON_INTERPRET": interpret}
    done = subprocess.run([*COMMAND, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


def test_nothing_that_may_be_absent_is_imported():
    """numba as well, which only a CPU's kernels need."""
    rooms = ("__main__", "checks", "rates", "graph_job", "hits", "epoch", "_gather_gpu")
    program = "\n".join(
        [
            "import sys",
            f"absent = {(*ABSENT, 'numba', 'torch_geometric', 'yaml')!r}",
            "sys.modules.update(dict.fromkeys(absent))",
            *(f"import fullgnn.bench.gpu.{room}" for room in rooms),
        ]
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
