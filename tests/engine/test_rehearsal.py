"""A rehearsal compiles what a step launches, launches nothing, and leaves no trace in the training."""

import textwrap

import pytest
import torch

from fullgnn.distributed import world_of_one
from fullgnn.engine import make_scheme, set_up
from fullgnn.engine.state import TrainState
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support import aligned
from fullgnn.kernels.support.compile_time import compile_clock
from fullgnn.kernels.support.rehearsal import rehearsal, rehearsing
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.gpu_code.commands import output_of_program
from tests.triton_device import needs_triton

pytestmark = needs_triton

RUNS = [
    "model=gcn kernel=auto model.dropout=0.4",
    "model=gcn model.norm=batch optimizer=sgd schedule=cosine",
    "model=gat model.dropout=0.4",
    "model=gatv2",
    "model=sage model.aggregation=max optimizer=adamw train.clip_norm=0.1",
    "model=sage model.norm=layer",
    "model=gin",
    "model=gcnii model.num_layers=3",
    "model=appnp",
    "model=sgc",
    "model=ngcn",
    "model=mlp",
    "model=gcn model.embedding_channels=5",
]


def losses(cfg, rehearses: bool) -> list[float]:
    """The losses of three epochs in Triton's interpreter, with the memory that kernels leave out filled with NaN and
    the largest integers, so that whatever reads it as an index raises."""
    with world_of_one(torch.device("cpu")) as world:
        meter = Meter(world.device)
        job = set_up(cfg, world, make_scheme(cfg, world, meter))
        runner = StepRunner(TrainState(job.model, cfg), job, meter)
        assert runner._rehearses
        runner._rehearses = rehearses
        return [runner(epoch).results.read()[0] for epoch in range(1, 4)]


@pytest.mark.sample(6)
@pytest.mark.parametrize("run", RUNS)
def test_a_rehearsal_changes_no_bit(run: str, triton_on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    cfg = config("dataset=karate", "runtime.dtype=float32", "train.epochs=20", "kernel=csr", "seed=3", *run.split())
    torch.use_deterministic_algorithms(True)  # without it, memory is not filled
    try:
        found = losses(cfg, rehearses=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found == losses(cfg, rehearses=False) and found[0] != found[2]


def test_nothing_is_launched_in_the_interpreter(triton_on_cpu: None) -> None:
    from fullgnn.kernels.epilogue._epilogue_gpu import apply_gpu
    from fullgnn.kernels.epilogue.epilogue import Epilogue

    y = torch.tensor([[-1.0, 2.0]])
    with rehearsal(1), compile_clock(lambda: None) as clock:
        apply_gpu(y, Epilogue(relu=True))
        assert rehearsing() and y.tolist() == [[-1.0, 2.0]]
    apply_gpu(y, Epilogue(relu=True))
    assert not rehearsing() and y.tolist() == [[0.0, 2.0]] and clock.seconds == 0


PROGRAM = """
    import threading
    import torch
    from triton.runtime import driver
    from fullgnn.kernels.epilogue._epilogue_gpu import _apply, apply_gpu
    from fullgnn.kernels.epilogue.epilogue import Epilogue
    from fullgnn.kernels.support import compile_time
    from fullgnn.kernels.support.compile_time import compile_clock
    from fullgnn.kernels.support.rehearsal import rehearsal
    from tests.gpu_code.absent import AbsentGPU

    driver.set_active(AbsentGPU())
    y, num_kernels = torch.zeros(5, 8), lambda: len(_apply.device_caches[0][0])
    waits, waited = [], compile_time.waited
    compile_time.waited = lambda seconds: (waits.append(seconds), waited(seconds))
    with compile_clock(lambda: None) as clock:
        for epilogues in ([Epilogue(relu=True), Epilogue(bias=y[0]), Epilogue(relu=True)], [Epilogue(bias=y[0])]):
            before = clock.seconds
            with rehearsal(2):
                for epilogue in epilogues:
                    apply_gpu(y, epilogue)
            print(num_kernels(), clock.seconds > before, len(waits))
    compiled_by, compile = [], _apply.compile
    _apply.compile = lambda *given, **named: (
        compiled_by.append(threading.current_thread().name), compile(*given, **named)
    )[1]
    with rehearsal(1):
        backward = threading.Thread(target=apply_gpu, args=(y, Epilogue(relu=True, bias=y[0])), name="backward")
        backward.start()
        backward.join()
    print(num_kernels(), compiled_by)
    try:
        with rehearsal(2):
            _apply[1,](y, 1, 5, 8, None, None, True, None, None, 0, 0, 0, 1.0, 1, 3, 8)  # 3 rows are no power of two
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.sample(2)
def test_kernels_are_compiled_once_and_counted() -> None:
    """On an absent GPU, on which a launch would fail: two kernels of three launches; then none, and no time counts.

    Clocks hear of each kernel. A kernel of another thread is compiled by the pool too, as that of a backward pass on a
    GPU. What the compiler refuses is raised."""
    lines = output_of_program(textwrap.dedent(PROGRAM)).split("\n")
    assert lines[:2] == ["2 True 2", "2 False 2"]
    assert lines[2:4] == ["3 ['ThreadPoolExecutor-2_0']", "CompilationError"]
