"""The wheel holds every package, every YAML and every template, and works from anywhere without the checkout."""

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fullgnn
from fullgnn.storage.record import read_record
from tests.commands import OWN, ROOT, run_command


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy of the sources, because a build writes files beside the sources."""
    pytest.importorskip("setuptools")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "fullgnn", "conf"):
        subprocess.run(["cp", "-r", ROOT / name, source / name], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", out, "."], cwd=source, check=True, timeout=120)
    (built,) = out.glob("fullgnn-*.whl")
    return built


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in (ROOT / "fullgnn").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = ("*.py", "py.typed", "*.j2", "*.css", "*.mplstyle")
    expected = {str(path.relative_to(ROOT)) for kind in kinds for path in (ROOT / "fullgnn").rglob(kind)}
    expected |= {f"fullgnn/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert expected == {name for name in names if not name.startswith("fullgnn-")}
    assert "fullgnn/py.typed" in expected  # type checkers read the annotations of an installed fullgnn


def test_the_version_is_that_of_the_checkout() -> None:
    assert fullgnn.__version__ == stated_version()


def stated_version() -> str:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser["metadata"]["version"]


@pytest.mark.sample(8)
def test_an_installed_wheel_trains_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    site, cwd = tmp_path / "site", tmp_path / "cwd"
    cwd.mkdir()
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(command, check=True, timeout=120)
    env = {**os.environ, "PYTHONPATH": str(site)}
    where = "import fullgnn, fullgnn.config as c; print(fullgnn.__file__, c.conf_dir(), fullgnn.__version__)"
    shown = subprocess.run([sys.executable, "-c", where], cwd=cwd, env=env, capture_output=True, text=True, check=True)
    paths = [str(site / "fullgnn" / "__init__.py"), str(site / "fullgnn" / "conf")]
    assert shown.stdout.split() == [*paths, stated_version()]

    arguments = ["runtime.nproc=1", "runtime.device=cpu", "dataset=karate", "train.epochs=2", "run_dir=out"]
    done = run_command(OWN, *arguments, cwd=cwd, env=env, new=True)
    assert done.status == 0, done.output
    record = read_record(cwd / "out")
    assert record.epochs == 2
    assert record.git_commit is None  # the wheel lies in no checkout


def test_a_shell_completes_every_public_name() -> None:
    """Also those that are made when they are first asked for."""
    assert set(fullgnn.__all__) <= set(dir(fullgnn)) and "__file__" in dir(fullgnn)
    assert dir(fullgnn) == sorted(dir(fullgnn))
