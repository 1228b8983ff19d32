"""Train a GNN on samples of a graph, over any number of processes, and evaluate it exactly on the full graph.

    python -m fullgnn.train_minibatch dataset=pubmed 'sampler.fanouts=[25,10]'
    python -m fullgnn.train_minibatch runtime.nproc=2 loader.batch_size=512 train.epochs=5
    torchrun --nproc-per-node 4 -m fullgnn.train_minibatch model=gat

Without torchrun the command starts its ranks itself. In all three, each rank calls ``run``.
"""

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, init_world
from fullgnn.engine.command import TrainingCommand
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.log import setup_logging
from fullgnn.train import Caller, train


def run(cfg: MinibatchConfig) -> RunRecord:
    """Run one training. Every rank of the job that torchrun's environment describes calls it.

    Args:
        cfg: the same on every rank; only rank 0 uses the folder ``run_dir`` and the files of the dataset.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    with init_world(cfg.runtime) as world:
        setup_logging(world.rank)
        return run_on(world, cfg)


def run_on(world: World, cfg: MinibatchConfig) -> RunRecord:
    """Run one training in a ``world`` that has been joined already.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """
    return train(world, cfg, lambda meter: set_up_sampled(cfg, world, meter), Caller())


COMMAND = TrainingCommand("fullgnn.train_minibatch", "minibatch", run)
start, main = COMMAND.start, COMMAND.main


if __name__ == "__main__":
    main()
