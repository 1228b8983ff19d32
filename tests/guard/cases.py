"""The runs of the guard, as the lines that a user would type.

Each case has a folder of its own, in which its commands run one after the other. The folder holds the files of
``graphs.py`` and ``machine.yaml``; ``before`` is the folder of the fixtures.
"""

from dataclasses import dataclass
from pathlib import Path

BEFORE = Path(__file__).parent / "before"
"""What the recorded version has written, see ``record.py``: a run with a checkpoint, and a cache with a graph."""


@dataclass(frozen=True)
class Command:
    """``python -m fullgnn.<module> <arguments>``, which writes to the folder ``out``."""

    module: str
    out: str
    arguments: str

    @property
    def line(self) -> list[str]:
        """The arguments, with those that all commands share."""
        key = {"predict": "out", "plan": "out"}.get(self.module, "run_dir")
        out = [] if self.module == "prepare" else [f"{key}={self.out}"]
        return [*self.arguments.replace("BEFORE", str(BEFORE)).split(), *out, "runtime.device=cpu", "runtime.threads=1"]


def train(out: str, arguments: str) -> Command:
    return Command("train", out, arguments)


def sampled(out: str, arguments: str) -> Command:
    return Command("train_minibatch", out, arguments)


def predict(out: str, arguments: str) -> Command:
    return Command("predict", out, arguments)


def plan(out: str, arguments: str) -> Command:
    return Command("plan", out, arguments)


_SAMPLED = "dataset=karate sampler.fanouts=[4,3] loader.batch_size=3"
_LINKS = "dataset=npz dataset.path=links.npz task=link_prediction task.channels=8"
_ITEMS = "dataset=interactions task=link_ranking model=lightgcn"
_AUTO = "scheme=auto scheme.hardware=machine.yaml"
_HARDWARE = "hardware=h100x8 runtime.cache_dir=cache"

CASES: dict[str, tuple[Command, ...]] = {
    "gcn": (
        train("gcn", "dataset=digits runtime.nproc=2 train.epochs=4 train.checkpoint_every=2"),
        train("resumed", "dataset=digits runtime.nproc=3 train.epochs=6 resume=gcn/checkpoints/epoch_000002"),
        predict("predicted", "checkpoint=gcn runtime.nproc=3"),
        predict("last", "checkpoint=gcn weights=last scheme=1.5d runtime.nproc=4"),
        predict("hidden", "checkpoint=gcn layer=0 runtime.nproc=1"),
    ),
    "sage": (train("sage", "dataset=digits model=sage reorder=rcm runtime.nproc=2 train.epochs=3"),),
    "gat": (train("gat", "dataset=karate model=gat runtime.nproc=3 train.epochs=4"),),
    "lightgcn": (train("lightgcn", f"{_ITEMS} task.channels=8 task.val_fraction=0.1 runtime.nproc=2 train.epochs=3"),),
    "link_prediction": (
        train("links", f"{_LINKS} task.batch_size=64 model=sage runtime.nproc=2 train.epochs=3"),
        train("gat", f"{_LINKS} task.num_negatives=2 model=gat runtime.nproc=1 train.epochs=2"),
    ),
    "multi_label": (
        train(
            "labels", "dataset=npz dataset.path=labels.npz train.save_predictions=true runtime.nproc=2 train.epochs=4"
        ),
    ),
    "batch_norm": (
        train(
            "norm",
            "dataset=karate model.norm=batch model.residual=true model.num_layers=3 runtime.nproc=3 train.epochs=4",
        ),
    ),
    "clip_and_schedule": (
        train(
            "clip",
            "dataset=karate train.clip_norm=0.05 optimizer=sgd optimizer.lr=0.5 optimizer.momentum=0.9"
            " schedule=cosine schedule.warmup_epochs=2 runtime.nproc=2 train.epochs=6",
        ),
    ),
    "embeddings": (
        train(
            "embedded",
            "dataset=karate model.embedding_channels=6 train.weight_decay_of={embedding:0.01}"
            " runtime.nproc=2 train.epochs=4 train.checkpoint_every=2",
        ),
        train(
            "resumed",
            "dataset=karate model.embedding_channels=6 train.weight_decay_of={embedding:0.01}"
            " runtime.nproc=1 train.epochs=5 resume=embedded/checkpoints/epoch_000002",
        ),
    ),
    "sampled": (
        sampled(
            "sampled",
            f"{_SAMPLED} loader.num_workers=1 runtime.nproc=2 train.epochs=3"
            " train.checkpoint_every_batches=1 train.keep_checkpoints=100",
        ),
        sampled(
            "resumed", f"{_SAMPLED} runtime.nproc=1 train.epochs=3 resume=sampled/checkpoints/epoch_000001_batch_000001"
        ),
        predict("predicted", "checkpoint=sampled runtime.nproc=2"),
    ),
    "sampled_and_cached": (
        sampled(
            "precomputed",
            "dataset=digits model=gcn model.input_dropout=0 model.num_layers=3 sampler.fanouts=[4,3]"
            " loader.batch_size=25 loader.precompute=true cache=degree cache.megabytes=0.1 codec=scalar"
            " runtime.nproc=1 train.epochs=2",
        ),
    ),
    "1.5d": (
        train("replicated", "dataset=digits scheme=1.5d scheme.shared_memory=false runtime.nproc=4 train.epochs=3"),
    ),
    "auto": (
        train("gcn", f"{_AUTO} dataset=digits runtime.nproc=4 train.epochs=3"),
        train("gat", f"{_AUTO} dataset=karate model=gat runtime.nproc=2 train.epochs=2"),
        train("links", f"{_AUTO} {_LINKS} model=gcn runtime.nproc=2 train.epochs=2"),
    ),
    "metis": (
        train(
            "metis", "dataset=digits partition=metis reorder=metis train.statistics=true runtime.nproc=2 train.epochs=3"
        ),
    ),
    "deterministic": (
        train(
            "deterministic",
            "dataset=karate runtime.deterministic=true runtime.dtype=float64 runtime.nproc=2 train.epochs=3",
        ),
    ),
    "wire_dtype": (
        train(
            "wire",
            "dataset=karate scheme.wire_dtype=bfloat16 scheme.shared_memory=false runtime.nproc=3 train.epochs=3",
        ),
    ),
    "dry": (train("dry", "dataset=digits runtime.dry_run=true world_size=4 rank=1 scheme=1.5d"),),
    "models": tuple(
        train(model, f"dataset=karate model={model} {keys} runtime.nproc=2 train.epochs=2")
        for model, keys in {
            "gatv2": "",
            "gin": "model.train_eps=true",
            "sgc": "",
            "ngcn": "model.classifier=attention",
            "appnp": "",
            "gcnii": "model.num_layers=4",
            "mlp": "",
            "sage": "model.aggregation=max model.jumping_knowledge=cat",
        }.items()
    ),
    "plan": (
        plan("gcn", f"{_HARDWARE} dataset=karate nproc=4"),
        *(plan(model, f"{_HARDWARE} dataset=karate nproc=2 model={model}") for model in ("sage", "gat")),
        plan("gcnii", f"{_HARDWARE} dataset=karate nproc=2 model=gcnii model.num_layers=4"),
        plan("links", f"{_HARDWARE} {_LINKS} nproc=2 model=gcn exchanges=auto"),
    ),
    "before": (
        train(
            "resumed",
            "dataset=karate model.hidden_channels=4 model.embedding_channels=2 runtime.nproc=2"
            " train.epochs=5 resume=BEFORE/run",
        ),
        predict("best", "checkpoint=BEFORE/run"),
        predict("last", "checkpoint=BEFORE/run weights=last runtime.nproc=2"),
        train("prepared", "dataset=karate reorder=rcm runtime.nproc=2 train.epochs=3 runtime.cache_dir=cache"),
    ),
}
