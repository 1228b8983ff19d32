"""Helpers that test_cuda_graph.py shares with other test modules."""

from typing import Any

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import fit, set_up
from fullgnn.engine.checks import replay_for
from fullgnn.engine.step_runner import StepRunner
from fullgnn.telemetry.meter import Meter


def on_gpu(world: World, cfg: Config, breaks: bool = False) -> dict[str, Any] | None:
    """Losses, parameters and outcome with and without a CUDA graph; None on a CPU."""
    if world.device.type == "cpu":
        return None
    outcomes: dict[str, Any] = {}
    for choice in ("never", "auto"):
        meter = Meter(world.device)
        job = set_up(cfg, world, meter)
        if breaks:
            job.model.register_forward_hook(lambda module, args, output: (output.sum().item(), output)[1])
        result = fit(StepRunner(job, replay_for(choice, world)))
        outcomes[choice] = {
            "losses": [record.loss for record in result.epochs],
            "parameters": [parameter.detach().cpu().numpy() for parameter in job.model.parameters()],
            "costs": [(record.cost.bytes_received, record.cost.counts) for record in result.epochs],
            "times": [record.cost.time_ms["epoch"] for record in result.epochs],
            "outcome": result.cuda_graph,
        }
    return outcomes
