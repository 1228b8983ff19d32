"""Fixtures of the graph tests: fields of tiny graphs, composed YAMLs, and the real data if present."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fullgnn.graph import load_dataset

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def fields():
    """Valid features, labels and masks for any number of nodes: node i has label i mod 2, node 0 trains."""

    def build(num_nodes, **changes):
        node = np.arange(num_nodes)
        default = dict(
            features=node[:, None] * np.float32([1, 10]),
            labels=node % 2,
            train_mask=node == 0,
            val_mask=node == 1,
            test_mask=node > 1,
            num_classes=2,
        )
        return {**default, **changes}

    return build


@cache
def composed(choice):
    with initialize_config_dir(str(REPOSITORY / "conf" / "dataset"), version_base=None):
        return compose(choice)


@pytest.fixture
def compose_dataset():
    """Composes a ``conf/dataset`` node with Hydra, like the program, with overrides; the result is a plain dict."""

    def build(choice, **overrides):
        return {**OmegaConf.to_container(composed(choice)), **overrides}

    return build


@pytest.fixture
def load_text(tmp_path, compose_dataset):
    """Loads a dataset of one file with a text or bytes, or as the file is if neither is given."""

    def load(choice, name, text=None, **overrides):
        file = tmp_path / name
        if text is not None:
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_dataset(compose_dataset(choice, path=str(file), **overrides))

    return load


@pytest.fixture
def shared_data():
    """The folder of real dataset files: FULLGNN_TEST_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("FULLGNN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set FULLGNN_TEST_DATA")
    return folder
