"""Kernels with a planted fault are found out, one line each, and clean ones are not."""

import pytest
import torch

from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels")]


def faults_of(kernel: str, grid: tuple[int, ...], *arguments: object) -> list[str]:
    from tests.launches import planted, watch

    with watch.watched() as faults:
        getattr(planted, kernel)[grid](*arguments)
    return faults


def padded(num_rows: int, width: int, stride: int, behind: int = 0) -> torch.Tensor:
    """A matrix of ones in rows ``stride`` apart, with ``behind`` more numbers of the same memory behind them."""
    memory = torch.zeros(num_rows * stride + behind)
    matrix = memory[: num_rows * stride].view(num_rows, stride)[:, :width]
    matrix.fill_(1)
    return matrix


def test_clean_kernels() -> None:
    x, out, total = padded(5, 41, 48), padded(5, 41, 48), torch.zeros(1)
    assert not faults_of("scale", (7,), x, out, 5, 41, 48, 48, 64, 41)
    assert (out == 2).all() and not out.as_strided((5, 7), (48, 1), 41).any()
    assert not faults_of("scale", (1,), padded(1, 3, 8), padded(1, 3, 8), 1, 3, 8, 8, 8, 3)
    assert not faults_of("total", (3,), torch.ones(40), total, 40, 16, True) and total == 40
    numbers = torch.arange(32)
    assert not faults_of("shift", (2,), numbers, 16, 0)
    for kernel, tensors in (("reverse", (numbers[:16], torch.zeros(16).long())), ("zero_then_set", (torch.ones(16),))):
        assert not faults_of(kernel, (1,), *tensors, 16, True)
    assert numbers[:16].tolist() == [*range(15, -1, -1)]
    assert not faults_of("scatter", (1,), torch.randperm(16), torch.zeros(16).long(), 16)


def test_accesses_outside_the_rows_are_named_and_not_made() -> None:
    x, out = padded(5, 41, 48), padded(4, 41, 48)
    (line,) = faults_of("scale", (5,), x, out, 5, 41, 48, 48, 64, 41)  # num_rows is that of x
    assert line == "scale: program (4, 0, 0) writes outside the rows of out: out at 192 elements from its first one"
    part = padded(8, 41, 48)[:5]  # the memory goes on, and belongs to somebody else
    (line,) = faults_of("scale", (6,), part, padded(6, 41, 48), 6, 41, 48, 48, 64, 41)
    assert line == "scale: program (5, 0, 0) reads outside the rows of x: x at 240 elements from its first one"
    (line,) = faults_of("shift", (2,), torch.arange(64)[32:], 16, -1)[:1]
    assert line == "shift: program (0, 0, 0) reads outside the rows of x: x at -1 elements from its first one"


def test_an_address_that_is_no_argument() -> None:
    memory = torch.arange(4)
    (line,) = faults_of("from_number", (1,), memory.data_ptr(), torch.zeros(1).long())
    assert line == "from_number: program (0, 0, 0) reads an address that derives from no argument"


def test_written_padding() -> None:
    x, out = padded(5, 41, 48), padded(5, 41, 48)
    (line,) = faults_of("scale", (5,), x, out, 5, 41, 48, 48, 64, 42)
    assert line == "scale: program (0, 0, 0) writes the padding of out: out[0, 41]"
    (line,) = faults_of("scale", (1,), padded(1, 3, 8), padded(1, 3, 8), 1, 3, 8, 8, 8, 4)
    assert line == "scale: program (0, 0, 0) writes the padding of out: out[0, 3]"


def test_programs_that_get_in_each_others_way() -> None:
    lines = faults_of("total", (3,), torch.ones(40), torch.zeros(1), 40, 16, False)
    assert lines[0] == "total: two programs write: out[0], programs (0, 0, 0) and (1, 0, 0)"
    assert "what another one writes: out[0]" in lines[1] and len(lines) == 2
    (line,) = faults_of("shift", (2,), torch.arange(48), 16, 16)
    assert line == "shift: a program accesses what another one writes: x[16], programs (1, 0, 0) and (0, 0, 0)"


def test_one_store_that_writes_an_address_twice() -> None:
    index = torch.randperm(16)
    index[3] = index[9]
    (line,) = faults_of("scatter", (1,), index, torch.zeros(16).long(), 16)
    assert line.startswith(f"scatter: one store writes twice: out[{index[3]}], program")


def test_threads_without_a_barrier() -> None:
    (line, *_) = faults_of("reverse", (1,), torch.arange(16), torch.zeros(16).long(), 16, False)
    assert line.startswith("reverse: two threads of a program access") and "no barrier between: out[0]" in line
    (line,) = faults_of("zero_then_set", (1,), torch.ones(16), 16, False)
    assert line.startswith("zero_then_set: two threads of a program access") and "out[2]" in line


@pytest.mark.xfail(strict=True, raises=pytest.fail.Exception)
def test_a_fault_fails_the_test_in_which_it_occurs(triton_on_cpu: None) -> None:
    from tests.launches.planted import total

    total[(3,)](torch.ones(40), torch.zeros(1), 40, 16, False)
