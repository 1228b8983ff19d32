"""Hardware profiles: reading and validating a profile, and where the profile of this machine is cached."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.costs import hardware
from fullgnn.costs.hardware import Hardware, Link, cached_hardware, load_hardware, read_hardware, write_hardware
from fullgnn.errors import ConfigError
from tests.cases import config

SHIPPED = sorted(path.stem for path in (conf_dir() / "hardware").glob("*.yaml"))
GATHER = {1_000_000: 1.6e10, 10_000: 4e10, 100_000_000: 4e9}
LINKS = {"exchange": Link(1e-5, 1e9), "all_reduce": Link(2e-5, 5e8)}
SMALL = Hardware("small", "made up", "cpu", 2, 8 * 10**9, 10**6, 1e10, 1e11, 1e-6, GATHER, LINKS, None)


def runtime(tmp_path: Path, *overrides: str) -> RuntimeConfig:
    return config("runtime.device=cpu", f"runtime.cache_dir={tmp_path}", *overrides).runtime


@pytest.mark.parametrize(
    ("table_bytes", "rate"),
    [
        (10_000, 4e10),
        (1_000_000, 1.6e10),
        (100_000, math.sqrt(4e10 * 1.6e10)),  # half way between the logarithms
        (10_000_000, 8e9),
        (1e6 * 100 ** (3 / 4), 1.6e10 * (1 / 4) ** (3 / 4)),
        (0, 4e10),
        (5_000, 4e10),
        (10**12, 4e9),
    ],
)
def test_the_gather_rate_is_interpolated_between_logarithms(table_bytes: float, rate: float) -> None:
    assert SMALL.gather_rate(table_bytes) == pytest.approx(rate, rel=1e-12)


def test_a_link_is_a_latency_and_a_rate() -> None:
    assert SMALL.link("exchange", 2).time_s(5e8) == pytest.approx(0.50001)
    assert SMALL.link("reduce_scatter", 2) == SMALL.link("gather", 2) == SMALL.links["exchange"]
    network = Link(1e-4, 1e8)
    two = replace(SMALL, network=network)
    assert two.link("all_reduce", 2) == SMALL.links["all_reduce"]
    assert two.link("all_reduce", 3) == two.link("exchange", 1024) == network


def test_a_link_that_a_profile_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="hardware=small has no link for broadcast: it has all_reduce, exchange"):
        SMALL.link("broadcast", 2)
    with pytest.raises(ConfigError, match="hardware=small is one machine of 2 ranks, not 3"):
        SMALL.link("exchange", 3)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_complete_and_says_that_it_is_not_measured(name: str) -> None:
    profile = load_hardware(name, config().runtime)
    assert profile.name == name
    assert profile.source.startswith("not measured: ") and "assumed" in profile.source
    for collective in ("exchange", "broadcast", "all_reduce", "reduce_scatter", "gather"):
        assert profile.link(collective, profile.ranks_per_node).bytes_per_s < profile.copy_bytes_per_s
    sizes = sorted(profile.gather)
    assert sizes[0] < profile.cache_bytes < sizes[-1]
    cached = profile.gather[sizes[0]]
    for size in sizes:  # as the profile says: cached rows at the rate of the cache, other rows at that of a copy
        hit = min(1, profile.cache_bytes / size)
        expected = 1 / (hit / cached + (1 - hit) / profile.copy_bytes_per_s)
        assert profile.gather[size] == pytest.approx(expected, rel=0.01)


def test_every_shipped_profile_is_known() -> None:
    assert SHIPPED == ["a100x8", "h100x8", "h200x8", "titanrtx8"]


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    odd = replace(SMALL, op_s=1 / 3, network=Link(0, math.pi * 1e9))
    write_hardware(odd, tmp_path / "odd.yaml")
    assert read_hardware(tmp_path / "odd.yaml") == odd
    assert load_hardware(str(tmp_path / "odd.yaml"), runtime(tmp_path)) == odd


WRONG = {
    "device": ("gpu", "device=gpu is not known: choose one of cpu, cuda"),
    "memory_bytes": (0, "memory_bytes=0 is not possible: it takes a positive number"),
    "cache_bytes": (1.5, "cache_bytes does not fit: it takes an integer"),
    "op_s": (-1e-6, "op_s=-1e-06 is not possible: it takes a positive number"),
    "copy_bytes_per_s": ("fast", "copy_bytes_per_s does not fit: it takes a number"),
    "gemm_flops_per_s": (math.inf, "gemm_flops_per_s=inf is not possible: it takes a positive number"),
    "gather": ({}, "gather is empty: give at least one rate"),
    "links": ({"exchange": 3}, "links.exchange does not fit: it takes the keys latency_s, bytes_per_s"),
    "network": ({"latency_s": -1, "bytes_per_s": 1}, "latency_s=-1.0 is not possible: it takes a non-negative number"),
    "speed": (1, "unknown key speed: the keys are name, source, device, "),
}


TEXTS = {
    "lacks keys": ("name: a", ": the profile lacks cache_bytes, "),
    "a list": ("- 1", ": a profile has keys and values"),
    "no YAML": ("a: [", " cannot be read as YAML"),
}
for key, (value, message) in WRONG.items():
    TEXTS[key] = OmegaConf.to_yaml(OmegaConf.create(asdict(SMALL) | {key: value})), f": {message}"


@pytest.mark.parametrize("kind", TEXTS)
def test_a_wrong_profile_is_one_line_that_says_what_is_wrong(tmp_path: Path, kind: str) -> None:
    text, message = TEXTS[kind]
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_hardware(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hardware=v100 is not known: choose one of auto, a100x8, h100x8, "):
        load_hardware("v100", runtime(tmp_path))
    with pytest.raises(ConfigError, match="hardware=none.yaml cannot be read .No such file"):
        load_hardware("none.yaml", runtime(tmp_path))


def test_auto_measures_once_for_each_number_of_ranks_and_threads(tmp_path: Path, monkeypatch) -> None:
    started: list[int] = []

    def launch(arguments: list[str], nproc: int, _: RuntimeConfig) -> None:
        assert arguments[:2] == ["-m", "fullgnn.costs.measure"]
        started.append(nproc)
        write_hardware(replace(SMALL, name=f"measured-{nproc}"), Path(arguments[2]))

    monkeypatch.setattr(hardware, "launch_workers", launch)
    of_one, of_two = runtime(tmp_path, "runtime.threads=1"), runtime(tmp_path, "runtime.threads=2")
    assert cached_hardware(of_one, 2) is None
    assert load_hardware("auto", of_one, 2).name == "measured-2"
    assert load_hardware("auto", of_one, 2) == cached_hardware(of_one, 2) == replace(SMALL, name="measured-2")
    assert started == [2]
    assert cached_hardware(of_two, 2) is cached_hardware(of_one, 1) is None
    load_hardware("auto", of_two, 2)
    load_hardware("auto", of_one, 1)
    assert started == [2, 2, 1]


def test_a_damaged_file_is_measured_again(tmp_path: Path, caplog) -> None:
    hardware.keep_hardware(SMALL, runtime(tmp_path), 1)
    path = hardware.cache_path(runtime(tmp_path), 1)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.write_text(path.read_text()[: path.stat().st_size // 2])
    assert cached_hardware(runtime(tmp_path), 1) is None
    assert caplog.messages[0].startswith(str(path)) and caplog.messages[0].endswith("it is not used")


def test_a_folder_that_cannot_be_written_costs_a_warning_alone(tmp_path: Path, caplog) -> None:
    (tmp_path / "hardware").write_text("a file in its place")
    hardware.keep_hardware(SMALL, runtime(tmp_path), 1)
    assert "the profile is not kept" in caplog.text


def test_without_a_cache_folder_it_is_the_users_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = hardware.cache_path(replace(runtime(tmp_path), cache_dir=None), 1)
    assert path.parent == tmp_path / ".cache" / "fullgnn" / "hardware"
