"""Jobs that raise, die and hang: each is said, and what comes after them is done all the same."""

import pytest

from fullgnn.bench.gpu import supervise
from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.supervise import Supervisor
from fullgnn.bench.gpu.worker import Task
from tests.commands import ROOT

JOBS = {"one": ["dies"], "two": ["works"], "three": ["raises"]}


@pytest.fixture
def states(tmp_path, monkeypatch):
    """``states(items, seconds)`` runs them as one job: the record, and item -> (state, reason)."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)

    def run(items, seconds=60.0):
        record = Record(tmp_path, "checks", measured=True)
        supervisor = Supervisor(record, Budget(seconds), lambda line: None)
        supervisor.run({"job": Task("tests.bench.gpu.jobs", seconds, True, {"items": items})})
        entries = record.tree.get("items", [])
        return record, {one.get("item"): (one["state"], one.get("reason", "")) for one in entries}

    return run


def test_items_that_fail_cost_no_others(states):
    record, found = states(["raises", "dies", "hangs", "long", "works"])
    assert found["raises"] == ("failed", "ZeroDivisionError: of course")
    assert found["dies"] == ("failed", "the worker ended with SIGSEGV")
    assert found["hangs"] == ("failed", "it hung: stopped after 1 s")
    assert found["long"][0] == "left out"
    assert found["works"][0] == "done" and record.tree["found"] == 7
    assert record.tree["starts"] == [0, 3, 4]  # two others took over; what was done before is not done again
    assert record.tree["deadly"] == ["dies", "hangs"]


def test_a_kernel_that_ended_a_worker_is_not_tried_again():
    task = Task("", 1.0, True, deadly=["packed64 bf16x2, width 41"])
    assert task.ended_by("packed64 bf16x2") and not task.ended_by("packed64 bf16")


def test_a_job_that_is_over_time_is_stopped_and_not_begun_again(states, monkeypatch):
    """The job's time ends as its second item begins, however long a worker takes to start."""
    take = Supervisor._take

    def take_and_end(self, worker, event):
        take(self, worker, event)
        if worker.item == "sleeps":
            worker.budget = Budget(0.0)

    monkeypatch.setattr(Supervisor, "_take", take_and_end)
    monkeypatch.setattr(supervise, "_GRACE_S", 0.0)
    record, found = states(["raises", "sleeps", "works"])
    assert found["sleeps"] == ("left out", "its time of 0 s was over")
    assert record.tree["starts"] == [0] and "found" not in record.tree


def test_jobs_side_by_side(states, tmp_path):
    record = Record(tmp_path, "checks", measured=True)
    jobs = {name: Task("tests.bench.gpu.jobs", 60.0, True, {"items": items}) for name, items in JOBS.items()}
    Supervisor(record, Budget(60), lambda line: None).run(jobs, parallel=2)
    found = {(one["job"], one["item"]): one["state"] for one in record.tree["items"]}
    assert found == {
        **{(name, "first"): "done" for name in JOBS},
        ("one", "dies"): "failed",
        ("two", "works"): "done",
        ("three", "raises"): "failed",
    }
    assert record.tree["starts"].count(0) == 3 and record.tree["found"] == 7


def test_a_job_without_time_is_left_out(states):
    record, found = states(["works"], seconds=1.0)
    assert found == {None: ("left out", "0 s are left")} and "found" not in record.tree


def test_workers_are_told_of_the_tuning_file(tmp_path, monkeypatch):
    """The constants are in force before a job begins; what is not there to be run is said once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)
    file = tmp_path / "tuning.yaml"
    file.write_text("csr: {elements: 512}")
    record = Record(tmp_path, "epochs", measured=True)
    supervisor = Supervisor(record, Budget(60.0), lambda line: None, str(file))
    supervisor.run({"job": Task("tests.bench.gpu.jobs", 60.0, True, {"items": ["constants"]})})
    assert record.tree["elements"] == 512
    supervisor.missing("whole", "hydra is not installed")
    assert record.tree["items"][-1] == {"job": "whole", "state": "missing", "reason": "hydra is not installed"}
