"""Damaged checkpoints, prepared folders and files of runs are named, or read as if they were whole.

The files in ``written_before`` are those of an earlier commit: a run of four epochs on karate with vectors of the
nodes, and its prepared graph.
"""

import collections
import copy
import functools
import hashlib
import json
import logging
import shutil
import time
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.optim import lr_scheduler as schedules

from fullgnn.config import Config, build
from fullgnn.config.trust import plain_config
from fullgnn.engine.checkpoints import check_graph, fitting
from fullgnn.engine.prediction import Trained, read_trained
from fullgnn.engine.run_folder import check_run_dir
from fullgnn.engine.saved import check_best, check_state
from fullgnn.engine.state import TrainState, place_rows
from fullgnn.errors import DataError
from fullgnn.partition import folder as folders
from fullgnn.partition.facts import Fingerprint
from fullgnn.partition.folder import LAYOUT, open_folder, write_folder
from fullgnn.predict import PredictionRequest, _run_nodes, load_request, prediction_config
from fullgnn.prepare.source import Preparation
from fullgnn.prepare.statistics import whole_matrix
from fullgnn.storage import checkpoint as files
from fullgnn.storage.record import read_epochs, read_record
from fullgnn.storage.text import of_fields, parse_json, parse_yaml, read_text
from fullgnn.storage.torch_file import load
from tests.cases import config, dense_graph
from tests.commands import run_command, torchrun
from tests.damage import ODD, damaged, each_file, edited, in_child, is_right
from tests.storage.records import seal, whole_record

BEFORE = Path(__file__).parent / "written_before"
EPOCH = BEFORE / "run" / "checkpoints" / "epoch_000002"
NUM_CASES = 300
BLOCK = 60  # cases of a test


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    """Children are forked, and the threads of torch are not."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def settings() -> Config:
    keys = ["model.hidden_channels=4", "model.embedding_channels=2", "train.epochs=4", "schedule=cosine"]
    return config("dataset=karate", *keys)


def new_state() -> TrainState:
    """A run that may go on from the checkpoint in ``written_before``."""
    model = build(settings().model, in_channels=34, out_channels=2, seed=0)
    place_rows(model, torch.arange(34))
    return TrainState(model, settings())


def use_checkpoint(folder: Path, request: PredictionRequest | None = None, composes: bool = False) -> str:
    """Do with a checkpoint what predictions and a resumed run do with it, and return a digest of all its tensors.

    Args:
        request: of predictions; None: the configuration in the checkpoint is not used.
        composes: whether that configuration is composed too, which takes a while.
    """
    files.check(folder)
    digest = hashlib.sha256()
    trained: Trained | None = None
    for weights in ("best", "last"):
        trained = read_trained(str(folder), weights)
        _add(digest, trained.parameters)
        digest.update(repr((trained.epoch, trained.graph, trained.labels, trained.run_config)).encode())
    assert trained is not None
    if request is not None:
        (prediction_config if composes else _run_nodes)(request, trained)
    content = files.read(folder, files.STATE)
    state = new_state()
    with fitting(folder, files.STATE):
        check_graph(trained.graph, of_fields(Fingerprint, trained.graph))
        saved = content.get("state")
        check_state(saved, state)
    with fitting(folder, files.BEST):
        best = files.read(folder, files.BEST).get("best")
        check_best(best, state.state_dict()["model"])
    state.load_state_dict(saved, best)
    for name in (files.STATE, files.BEST):
        for part in files.read_rows(folder, name):
            _add(digest, part)
    state.optimizer.step()
    assert state.schedule is not None
    state.schedule.step()
    _add(digest, dict(state.model.named_parameters()))
    return digest.hexdigest()


def _add(digest: Any, tensors: Any) -> None:
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            digest.update(repr((name, tensor.dtype, tensor.shape)).encode())
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def use_prepared(folder: Path) -> str:
    """Read all of a prepared graph, multiply it by ones, and return a digest of it."""
    prepared, digest = open_folder(folder), hashlib.sha256()
    digest.update(json.dumps(prepared.facts.to_json()).encode())
    for part in prepared.parts():
        for name in sorted(part.arrays):
            array = part.arrays[name]
            digest.update(repr((name, array.dtype, array.shape)).encode() + array.tobytes())
    product = whole_matrix(prepared, self_loops=True) @ np.ones(prepared.facts.num_nodes)
    return digest.hexdigest() + repr(product.sum())


def use_run(folder: Path) -> str:
    """Read the files of a run."""
    config = plain_config(parse_yaml(read_text(folder / "config.yaml"), folder))
    return repr((config, read_record(folder), read_epochs(folder)))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run, without its checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copy(BEFORE / "run" / "epochs.jsonl", folder)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(settings())))
    (folder / "record.json").write_text(json.dumps(whole_record()))
    return folder


def test_what_was_written_before_is_read_with_the_same_bits() -> None:
    for file in sorted(EPOCH.glob("*.pt")):
        _assert_equal(load(file), torch.load(file, weights_only=True))
    files.check(EPOCH)
    again, opened = Preparation(settings(), 1).in_memory(), open_folder(BEFORE / "prepared")
    assert opened.facts.nodes == again.facts.nodes
    for name, array in again.part(0).arrays.items():
        assert np.array_equal(opened.part(0).arrays[name], array[:]), name


def _assert_equal(value: Any, other: Any) -> None:
    assert type(value) is type(other)
    if isinstance(value, dict):
        assert list(value) == list(other)
        value, other = list(value.values()), list(other.values())
    if isinstance(value, (list, tuple)):
        for below, beside in zip(value, other, strict=True):
            _assert_equal(below, beside)
    elif isinstance(value, torch.Tensor):
        assert (value.dtype, value.shape, value.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(value, other)
    else:
        assert value == other


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["best", "last"])
def test_what_was_written_before_predicts_the_same_bits(tmp_path: Path, kind: str) -> None:
    """The outputs are those that the run wrote at the end of its training."""
    own = [*torchrun(1)[:2], "fullgnn.predict"]
    out = tmp_path / "out"
    given = [f"checkpoint={BEFORE / 'run'}", f"out={out}", f"weights={kind}", "runtime.device=cpu", "runtime.threads=1"]
    done = run_command(own, *given, cwd=tmp_path)
    assert done.status == 0, done.output
    with np.load(BEFORE / "run" / "predictions.npz") as arrays:
        assert np.array_equal(arrays["logits"], np.load(out / "outputs.npy")) == (kind == "best")


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", range(NUM_CASES // BLOCK))
def test_a_damaged_checkpoint_is_named_or_whole(tmp_path: Path, block: int, every_case: bool) -> None:
    _try_damages(EPOCH, tmp_path / "checkpoints" / EPOCH.name, use_checkpoint, block, every_case)


@pytest.mark.sample(6)
@pytest.mark.parametrize("block", range(NUM_CASES // BLOCK))
def test_a_damaged_prepared_graph_is_named_or_whole(tmp_path: Path, block: int, every_case: bool) -> None:
    path = tmp_path / "whole"
    write_folder(
        Preparation(config("partition=random", "reorder=rcm"), 2, dense_graph("weighted").graph()).in_memory(), path
    )
    _try_damages(path, tmp_path / "damaged", use_prepared, block, every_case)


def _try_damages(whole: Path, folder: Path, use: Any, block: int, every_case: bool) -> None:
    """Damage one file of the folder ``whole`` after the other, in a copy, and use it; of a sample, five cases."""
    shutil.copytree(whole, folder)
    expected, refused = use(folder), 0
    paths = each_file(folder)

    def check() -> None:
        assert use(folder) == expected

    assert in_child(check) == "right"
    for seed in range(block * BLOCK, (block + 1) * BLOCK) if every_case else range(7 * block, 7 * block + 2):
        file = paths[seed * 31 % len(paths)]
        content = file.read_bytes()
        file.write_bytes(damaged(content, seed))
        outcome = in_child(check)
        file.write_bytes(content)
        assert is_right(outcome), f"{file.name}, seed {seed}: {outcome}"
        refused += outcome != "right"
    assert refused  # most damages count


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", range(NUM_CASES // BLOCK))
def test_an_edited_checkpoint_is_named_or_used(tmp_path: Path, block: int, every_case: bool) -> None:
    """Values of all kinds in all places of the files, with right checksums."""
    folder = tmp_path / "checkpoints" / EPOCH.name
    shutil.copytree(EPOCH, folder)
    odd = (*ODD, torch.zeros(3), torch.zeros(0, dtype=torch.int64), torch.zeros(36, 4, dtype=torch.float64))
    odd += (torch.zeros(4, 36).T, torch.zeros(1).expand(36, 4), [{"_target_": "os.system"}], collections.OrderedDict())
    contents = {file: load(file) for file in each_file(folder) if file.suffix == ".pt"}
    request = load_request([f"checkpoint={folder}"])
    assert use_checkpoint(folder, request, composes=True)  # also so that the children find all of it read
    for seed in range(block * BLOCK, (block + 1) * BLOCK) if every_case else range(7 * block, 7 * block + 3):
        file = list(contents)[(0, 2, 2, 2, 3)[seed % 5]]
        torch.save(edited(contents[file], seed, odd), file)
        seal(folder)
        outcome = in_child(use_checkpoint, folder, request, seed % 10 == 1)
        torch.save(contents[file], file)
        seal(folder)
        assert is_right(outcome), f"{file.name}, seed {seed}: {outcome}"


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", range(NUM_CASES // BLOCK))
def test_an_edited_prepared_graph_is_named_or_used(tmp_path: Path, block: int, every_case: bool) -> None:
    """Values of all kinds in layout.json, and arrays of all kinds with right checksums."""
    path = tmp_path / "graph"
    write_folder(
        Preparation(config("partition=random", "reorder=rcm"), 2, dense_graph("directed").graph()).in_memory(), path
    )
    about = folders.read_layout(path)
    names = sorted(about["files"])
    for seed in range(block * BLOCK, (block + 1) * BLOCK) if every_case else range(7 * block, 7 * block + 3):
        changed, name = about, names[seed % len(names)]
        content = (path / name).read_bytes()
        if seed % 2:
            changed = edited(about, seed)
        else:
            array = np.load(path / name)
            np.save(path / name, _odd_array(array, seed), allow_pickle=True)
            odd = (path / name).read_bytes()
            changed = about | {"files": about["files"] | {name: [len(odd), zlib.crc32(odd)]}}
        (path / LAYOUT).write_text(json.dumps(changed, allow_nan=True))
        outcome = in_child(use_prepared, path)
        (path / name).write_bytes(content)
        assert is_right(outcome), f"{name}, seed {seed}: {outcome}"


def _odd_array(array: np.ndarray, seed: int) -> np.ndarray:
    copy = array.copy()
    if copy.size and seed % 3 == 0:
        copy.reshape(-1)[seed % copy.size] = (2**31 - 1 if copy.dtype.kind == "i" else np.nan) if seed % 4 else -7
        return copy
    others = [
        array[:-1],
        array.astype("f4"),
        array.astype(object),
        array.T.copy(),
        array[..., None],
        array.astype(">i8"),
    ]
    return others[seed // 2 % len(others)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", range(NUM_CASES // BLOCK))
def test_damaged_files_of_a_run_are_named_or_read(
    tmp_path: Path, run_folder: Path, block: int, every_case: bool
) -> None:
    """Texts have no checksum: a digit of a loss may change, and nothing else may happen than one line."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    paths = each_file(folder)
    assert use_run(folder)
    for seed in range(block * BLOCK, (block + 1) * BLOCK) if every_case else range(7 * block, 7 * block + 3):
        file = paths[seed % len(paths)]
        content = file.read_bytes()
        if seed % 2 and file.suffix == ".json":
            file.write_text(json.dumps(edited(json.loads(content), seed)))
        else:
            file.write_bytes(damaged(content, seed))
        outcome = in_child(use_run, folder)
        file.write_bytes(content)
        assert is_right(outcome), f"{file.name}, seed {seed}: {outcome}"


def _chained(optimizer: torch.optim.Optimizer) -> schedules.LRScheduler:
    return schedules.ChainedScheduler([schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)])


SCHEDULES: dict[str, Any] = {
    "ChainedScheduler": _chained,
    "ConstantLR": schedules.ConstantLR,
    "CosineAnnealingLR": lambda optimizer: schedules.CosineAnnealingLR(optimizer, 9),
    "CosineAnnealingWarmRestarts": lambda optimizer: schedules.CosineAnnealingWarmRestarts(optimizer, 2),
    "CyclicLR": lambda optimizer: schedules.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
    "ExponentialLR": lambda optimizer: schedules.ExponentialLR(optimizer, 0.9),
    "LambdaLR": lambda optimizer: schedules.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "LinearLR": schedules.LinearLR,
    "MultiStepLR": lambda optimizer: schedules.MultiStepLR(optimizer, [1, 1, 3]),
    "OneCycleLR": lambda optimizer: schedules.OneCycleLR(optimizer, 0.5, total_steps=9, cycle_momentum=False),
    "PolynomialLR": schedules.PolynomialLR,
    "SequentialLR": lambda optimizer: schedules.SequentialLR(
        optimizer, [schedules.ConstantLR(optimizer), schedules.StepLR(optimizer, 2)], [1]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_torch_goes_on_with_its_state(tmp_path: Path, name: str) -> None:
    state, again = new_state(), new_state()
    state.schedule, again.schedule = SCHEDULES[name](state.optimizer), SCHEDULES[name](again.optimizer)
    for _ in range(3):
        state.optimizer.step()
        state.schedule.step()
    torch.save(state.state_dict(), tmp_path / "state.pt")
    saved = load(tmp_path / "state.pt")
    check_state(saved, again)
    again.load_state_dict(saved, None)
    for train_state in (state, again):
        train_state.optimizer.step()
        train_state.schedule.step()  # type: ignore[union-attr]
    assert again.schedule.get_last_lr() == state.schedule.get_last_lr()


@pytest.mark.parametrize("numbers", [torch.zeros(3), torch.zeros(0, dtype=torch.int64), [torch.zeros(3)], [True]])
def test_the_numbers_of_parameters_may_be_anything(tmp_path: Path, numbers: Any) -> None:
    """A comparison with a tensor is no truth value."""
    state = new_state()
    torch.save(state.state_dict(), tmp_path / "state.pt")
    saved = load(tmp_path / "state.pt")
    if isinstance(numbers, list):
        numbers = numbers + saved["optimizer"]["param_groups"][0]["params"][1:]
    saved["optimizer"]["param_groups"][0]["params"] = numbers
    with pytest.raises(DataError, match=r"param_groups\.0\.params has other parameters than this model"):
        check_state(saved, state)


def test_every_bit_of_a_small_file_counts_or_does_not(tmp_path: Path, every_case: bool) -> None:
    """One bit of each byte of the headers is flipped: the file is refused, or has the same tensors."""
    file = tmp_path / "best_rows_0000.pt"
    shutil.copy(EPOCH / file.name, file)
    content, whole = bytearray(file.read_bytes()), load(file)
    refused = 0
    for place in range(0, len(content), 1 if every_case else 7):
        content[place] ^= 1 << place % 8
        file.write_bytes(content)
        content[place] ^= 1 << place % 8
        try:
            _assert_equal(load(file), whole)
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 0.4 * len(content) / (1 if every_case else 7)


def _pickled(*operations: bytes) -> bytes:
    return b"\x80\x02" + b"".join(operations) + b"."


HUGE = {
    "a storage of 10^12 elements": _pickled(
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu",
        b"\x8a\x06" + (10**12).to_bytes(6, "little") + b"tQK\0K\x04\x85K\x01\x85\x89}tR",
    ),
    "a tensor of 10^12 elements": _pickled(
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu",
        b"K\x04tQK\0\x8a\x06" + (10**12).to_bytes(6, "little") + b"\x85K\x01\x85\x89}tR",
    ),
    "a memo of 2^32 places": _pickled(b"Nr\xff\xff\xff\xff"),
    "an array of 2^40 bytes": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    "a call": _pickled(b"cos\nsystem\nX\x04\0\0\0true\x85R"),
    "a deep list": _pickled(b"]" * 10**5 + b"a" * (10**5 - 1)),
    "a deep key, whose hash ends the process": _pickled(b"})" + b"\x85" * 300_000 + b"K\x01s"),
    "a key that takes 2^60 steps to hash": _pickled(
        b")q\x00", *(bytes([0x68, k, 0x68, k, 0x86, 0x71, k + 1]) for k in range(60)), b"}h\x3cK\x01s"
    ),
    "an ordered mapping that is called with a deep key": _pickled(
        b"ccollections\nOrderedDict\n]](" + b")" + b"\x85" * 300_000 + b"K\x01ea\x85R"
    ),
    "a storage of objects": _pickled(b"(X\x07\0\0\0storagecbuiltins\nlist\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"),
}


@pytest.mark.parametrize("case", HUGE)
def test_what_a_pickle_claims_is_measured(tmp_path: Path, case: str) -> None:
    file = tmp_path / "state.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", HUGE[case])
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", np.ones(4, np.float32).tobytes())
    seal(tmp_path)
    outcome = in_child(files.read, tmp_path, files.STATE)
    assert is_right(outcome) and str(file) in outcome, outcome


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "state.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**8))
        archive.writestr("archive/version", "3\n")
    with pytest.raises(DataError, match="data.pkl is compressed"):
        load(tmp_path / "state.pt")


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "state.pt", "w") as archive:
        archive.writestr("archive/data.pkl", _pickled(b"N"))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", bytes(1000))
        again = archive.getinfo("archive/data/0")
        for number in range(1, 10):
            archive.filelist.append(copy.copy(again))
            archive.filelist[-1].filename = f"archive/data/{number}"
    with pytest.raises(DataError, match="its members overlap"):
        load(tmp_path / "state.pt")


def test_odd_texts_are_refused_at_once() -> None:
    for text in ("!!bool foo", '!!int ""', '!!float ""', "!!timestamp x"):
        with pytest.raises(DataError, match="cannot be read as YAML"):
            parse_yaml(text, "config.yaml")
    assert parse_yaml("a: ._", "config.yaml") == {"a": "._"}
    begin = time.process_time()
    for end in ("", "\\"):
        with pytest.raises(DataError, match="is no JSON"):
            parse_json("[" + "[]" * 70 + ',"' + '\\"' * 60_000 + end, "record.json")
    assert time.process_time() - begin < 5  # it took minutes, quadratic in the length
    assert parse_json('["[[[[", "a\\"[", ' + "[" * 60 + "]" * 60 + ', "' + "[" * 99 + '"]', "record.json")[1] == 'a"['


def test_one_flipped_bit_of_the_best_weights_is_named_with_the_cure(tmp_path: Path) -> None:
    """Before, such a file predicted other numbers, with status 0."""
    for name in ("epoch_000002", "epoch_000004"):
        shutil.copytree(EPOCH, tmp_path / "checkpoints" / name)
    last = tmp_path / "checkpoints" / "epoch_000004"
    content = bytearray((last / "best.pt").read_bytes())
    best = files.read(last, files.BEST)["best"]["model"]["layers.0.conv.linear.weight"]
    content[bytes(content).index(best.numpy().tobytes()) + 7] ^= 1
    (last / "best.pt").write_bytes(content)
    cure = f"choose an earlier checkpoint of the run, such as {tmp_path}/checkpoints/epoch_000002"
    with pytest.raises(DataError, match=rf"^{last}/best.pt cannot be read \(checksum of the member data/\d\): {cure}$"):
        read_trained(str(tmp_path), "best")
    with pytest.raises(DataError, match=rf"^{last}/best.pt cannot be read \(checksum"):
        files.check(last)
    (last / "best.pt").unlink()
    with pytest.raises(DataError, match=rf"^{last} has no file best.pt: {cure}$"):
        files.check(last)
    shutil.copy(last / "state.pt", last / "best.pt")  # whole, but of another place
    with pytest.raises(DataError, match=rf"^{last}/best.pt cannot be read \(\d+ bytes instead of \d+\): {cure}$"):
        files.check(last)


def test_resume_auto_takes_the_one_before_a_damaged_checkpoint(
    ranks: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    for name in ("epoch_000002", "epoch_000003"):
        shutil.copytree(EPOCH, run / "checkpoints" / name)
    broken = run / "checkpoints" / "epoch_000003" / "best_rows_0000.pt"
    broken.write_bytes(damaged(broken.read_bytes(), 4))
    cfg = replace(settings(), run_dir=str(run), resume="auto")
    with caplog.at_level(logging.WARNING):
        assert check_run_dir(cfg) == run / "checkpoints" / "epoch_000002"
    assert [str(broken) in record.message for record in caplog.records] == [True]
    with pytest.raises(DataError, match=f"{broken} cannot be read"):
        check_run_dir(replace(cfg, resume=str(broken.parent), run_dir=str(tmp_path / "other")))


def test_deep_and_repeated_texts_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + k)}: &{chr(98 + k)} [*{chr(97 + k)}, *{chr(97 + k)}]\n" for k in range(20)
    )
    for text in (bomb, "a: " + "[" * 10**5, "- " * 10**4 + "x", "!!python/object/apply:os.system [true]"):
        with pytest.raises(DataError, match="^config.yaml cannot be read as YAML") as caught:
            parse_yaml(text, "config.yaml")
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    deep = '{"format": 1, "facts": ' + "[" * 10**6
    (tmp_path / LAYOUT).write_text(deep)
    with pytest.raises(DataError, match="layout.json .is nested more than 64 levels deep.: delete the folder"):
        open_folder(tmp_path)
    (tmp_path / "record.json").write_text(deep)
    with pytest.raises(DataError, match="record.json cannot be read: .*is nested more than 64 levels deep"):
        read_record(tmp_path)
    (tmp_path / "epochs.jsonl").write_text('{"epoch": 1, "loss": 2.0}\n' + deep + "\n")
    assert read_epochs(tmp_path) == ([{"epoch": 1, "loss": 2.0}], True)


def test_a_digit_of_layout_json_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    write_folder(Preparation(config("partition=random"), 2, dense_graph("directed").graph()).in_memory(), path)
    about = json.loads((path / LAYOUT).read_text())
    (path / LAYOUT).write_text(json.dumps(about | {"facts": about["facts"] | {"load_time_s": 0.25}}))
    with pytest.raises(DataError, match=rf"damaged: {path}/layout.json \(checksum\): delete the folder {path}, and"):
        open_folder(path)
