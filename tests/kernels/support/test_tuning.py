"""The constants of the kernels come from one place, and a file replaces them."""

from pathlib import Path

import pytest
import torch

from fullgnn.errors import ConfigError
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import Tuning, read_tuning, tuning_for, tuning_of

FILE = """
csr:
  elements: 8192
  widths:
    16: {elements: 2048}
    64: {elements_per_warp: 256}
"""


def test_a_file_replaces_some_constants_for_some_widths(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-h200.yaml"
    path.write_text(FILE)
    read, default = read_tuning(path), Tuning()
    assert read.panels == default.panels and read.csr.general.elements_per_warp == 1024
    assert [read.csr.at(width).elements for width in (1, 16, 17, 64, 65)] == [2048, 2048, 8192, 8192, 8192]
    assert [read.csr.at(width).elements_per_warp for width in (16, 17, 64, 65)] == [1024, 256, 256, 1024]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "must hold one mapping for each of csr, panels"),
        ("spmm: {}", "must hold one mapping for each of csr, panels"),
        ("csr: {lanes: 3}", "names unknown constants, lanes: choose from elements, elements_per_warp$"),
        ("csr: {widths: {8: {lanes: 3}}}", "names unknown constants, lanes: choose from elements"),
        ("csr: {", "cannot be read"),
    ],
)
def test_mistakes_name_the_file(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        read_tuning(path)
    assert str(path) in str(error.value)


def test_the_file_of_a_gpu_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "nvidia-h200.yaml").write_text(FILE)
    monkeypatch.setattr(tuning, "conf_dir", lambda: tmp_path)
    monkeypatch.setattr(
        torch.cuda, "get_device_name", lambda device: {0: "NVIDIA H200", 1: "NVIDIA A100"}[device.index]
    )
    tuning.tuning_of_gpu.cache_clear()
    assert tuning_for(torch.device("cuda", 0)).csr.general.elements == 8192
    assert tuning_for(torch.device("cuda", 1)) == tuning_for(torch.device("cpu")) == Tuning()
    tuning.tuning_of_gpu.cache_clear()


def test_a_process_may_be_given_other_constants() -> None:
    given = tuning_of({"dense": {"mask_tiles": 2}})
    tuning.use(given)
    try:
        assert tuning_for(torch.device("cpu")) is given
    finally:
        tuning.use(None)
    assert tuning_for(torch.device("cpu")) == Tuning()
