"""Who decides ``scheme.fetch=auto``: the profile of the GPU of the run, or nobody."""

import logging
from dataclasses import replace

import pytest
import torch

from fullgnn.config.keys import choices
from fullgnn.costs.auto import CostPlanner
from fullgnn.costs.hardware import load_hardware, profile_of
from fullgnn.distributed import dry_world
from fullgnn.engine import make_scheme
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.costs.test_predict import prepare_for

GPUS = {
    "a100x8": "NVIDIA A100-SXM4-80GB",
    "h100x8": "NVIDIA H100 80GB HBM3",
    "h200x8": "NVIDIA H200",
    "titanrtx8": "NVIDIA TITAN RTX",
}


@pytest.mark.parametrize(
    ("gpu", "fetch", "said"),
    [
        ("NVIDIA H200", "whole", "scheme.fetch=auto: whole, by the profile h200x8"),
        ("NVIDIA H100 80GB HBM3", "whole", "scheme.fetch=auto: whole, by the profile h100x8"),
        ("NVIDIA H100 PCIe", "stages", "scheme.fetch=auto: stages, since there is no profile of NVIDIA H100 PCIe"),
        (None, "auto", None),  # a CPU: as stages, and there is nothing to tell
    ],
)
def test_a_gpu_without_a_profile_gets_its_rows_in_stages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gpu: str | None, fetch: str, said: str | None
) -> None:
    """On this small graph the latencies of the profiles are all that counts, and one exchange has the fewest."""
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: gpu)
    cfg = config("dataset=karate", "scheme=1d", "runtime.device=cpu")
    with dry_world(cfg.runtime, 0, 8) as world, caplog.at_level(logging.INFO):
        scheme = make_scheme(cfg, world, Meter(world.device))
        seen = replace(world, device=torch.device("cuda" if gpu else "cpu"))
        decided = CostPlanner().with_fetch(cfg, seen, scheme, prepare_for(cfg, 8))
    assert decided.scheme["fetch"] == scheme.grid.fetch == fetch  # type: ignore[attr-defined]
    assert [line for line in caplog.messages if "scheme.fetch" in line] == ([said] if said else [])


def test_each_shipped_profile_names_its_gpu() -> None:
    runtime = config().runtime
    assert {name: load_hardware(name, runtime).gpu for name in choices("hardware")} == GPUS
    assert all(profile_of(gpu) == load_hardware(name, runtime) for name, gpu in GPUS.items())
    assert profile_of("NVIDIA L40S") is profile_of("") is None
