"""The graph of ``train_graph`` stays beside its run, so that the run can be predicted with, and gone on with.

until the set-up has ended    a temporary file, since a run that fails before its training leaves nothing
from then on                  ``graph.npz`` in the run folder, which ``config.yaml`` and the checkpoints name
"""

import shutil
from dataclasses import replace
from pathlib import Path

from fullgnn.config import Config
from fullgnn.errors import ConfigError
from fullgnn.graph.datasets import CONTENTS, UNKNOWN, contents_of
from fullgnn.storage.folder import GRAPH, has_own_graph
from fullgnn.storage.temporary import replacing, writing_to


def with_kept_graph(cfg: Config) -> Config:
    """``cfg`` as the files of its run have it: a graph of ``train_graph`` lies in the run folder. Other datasets stay
    where they are."""
    digest = contents_of(cfg.dataset.get(CONTENTS), cfg.dataset.get("path"))
    if digest is None:
        return cfg
    path = str(Path(cfg.run_dir).absolute() / GRAPH)
    contents = UNKNOWN if digest == UNKNOWN else f"{digest} {path}"
    return replace(cfg, dataset={**cfg.dataset, "path": path, CONTENTS: contents})


def check_place(cfg: Config, checkpoint: Path | None) -> None:
    """Refuse to replace a ``graph.npz`` of the user's. Only rank 0 calls it, before anything is loaded.

    Args:
        checkpoint: from which the run goes on, whose graph must be the same.

    Raises:
        ConfigError: there is such a file in the run folder.
    """
    folder = Path(cfg.run_dir).absolute()
    goes_on = checkpoint is not None and checkpoint.parent.parent == folder
    if with_kept_graph(cfg) != cfg and (folder / GRAPH).exists() and not goes_on and not has_own_graph(folder):
        raise ConfigError(
            f"run_dir={cfg.run_dir} holds a {GRAPH} that train_graph has not written, and the graph of this run would"
            " replace it: move it, or choose another run_dir"
        )


def keep_graph(loaded: Config, kept: Config) -> None:
    """Move the file of the graph from where a run has ``loaded`` it to where it is ``kept``. Only rank 0 calls it.

    Raises:
        ConfigError: the run folder cannot be written, or has too little room.
    """
    source, target = loaded.dataset.get("path"), kept.dataset.get("path")
    if source == target:
        return
    with writing_to("run_dir", kept.run_dir), replacing(Path(target)) as temporary:
        shutil.move(source, temporary)
