"""Items that raise, die or hang are reported, and the items after them run all the same."""

import pytest

from fullgnn.bench.gpu.items import Runner
from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.worker import Budget, Task
from tests.commands import ROOT
from tests.trainings import is_running, wait


def item(name, cases, seconds=60.0, module="tests.bench.gpu.jobs"):
    return Task(module, seconds, True, {"items": cases}, name)


@pytest.fixture
def states(tmp_path, monkeypatch):
    """A function that runs items, and returns the record and a mapping from (item, case) to (state, reason)."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)

    def run(items, parallel=1, tuning=None):
        record = Record(tmp_path, "checks", measured=True)
        runner = Runner(record, Budget(100.0), lambda line: None, tuning)
        runner.run(items, parallel)
        entries = record.tree.get("items", [])
        return record, {(one["job"], one.get("item")): (one["state"], one.get("reason", "")) for one in entries}

    return run


@pytest.mark.sample(3)
def test_what_a_process_found_before_it_died_is_kept(states):
    """After a case that ends its process, the later cases of the same item do not run; other items do."""
    cases = {"one": ["raises", "lacks", "long", "works", "dies"], "two": ["hangs", "works"], "three": ["works"]}
    record, found = states([item(name, those) for name, those in cases.items()], parallel=3)
    assert found == {
        **{(name, "first"): ("done", "") for name in cases},
        ("one", "raises"): ("failed", "ZeroDivisionError: of course"),
        ("one", "lacks"): ("missing", "no such library"),
        ("one", "long"): ("left out", found["one", "long"][1]),
        ("one", "works"): ("done", ""),
        ("one", "dies"): ("failed", "its process ended with SIGSEGV"),
        ("two", "hangs"): ("failed", "it hung: stopped after 1 s"),
        ("three", "works"): ("done", ""),
    }
    assert record.tree["found"] == 7 and record.tree["starts"] == [1, 1, 1]


@pytest.mark.sample(3)
def test_an_item_that_is_over_time_is_stopped_with_its_children(states, monkeypatch):
    """The time of the item ends as its second case begins, however long a process takes to start."""
    monkeypatch.setattr("fullgnn.bench.gpu.items._GRACE_S", 0.5)
    read = Runner._read

    def read_and_end(self, one):
        found = read(self, one)
        if one.case == "starts" and "sleeper" in self.record.tree:
            one.budget = Budget(0.0)
        return found

    monkeypatch.setattr(Runner, "_read", read_and_end)
    record, found = states([item("one", ["raises", "starts", "works"])])
    assert found["one", "starts"][0] == "left out" and "was over" in found["one", "starts"][1]
    assert "found" not in record.tree
    wait(lambda: not is_running(record.tree["sleeper"]), 10)  # it has been killed, which may take a moment


def test_an_item_without_time_is_left_out(states):
    record, found = states([item("one", ["works"], seconds=1.0)])
    assert found == {("one", None): ("left out", "1 s are left")} and "found" not in record.tree


@pytest.mark.sample(3)
def test_an_item_is_told_of_the_tuning_file_and_says_what_is_not_installed(states, tmp_path):
    """The constants are in force before a job begins; a job that cannot be imported stops no other."""
    file = tmp_path / "tuning.yaml"
    file.write_text("csr: {elements: 512}")
    items = [item("one", [], module="no_such_library.job"), item("two", ["constants"])]
    record, found = states(items, tuning=str(file))
    assert record.tree["elements"] == 512
    assert found["one", "job"] == ("missing", "no_such_library is not installed: pip install no_such_library")
