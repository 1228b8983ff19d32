"""What a task says of itself, before it is built and afterwards.

The ``_target_`` of a task is a class, or a function that returns an instance. A class says it in a class attribute
``contract``; a function is decorated with ``states``. A task that says nothing learns from nodes, in full batches.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from fullgnn.graph import Graph

Target = TypeVar("Target", bound=Callable[..., Any])


@dataclass(frozen=True)
class TaskContract:
    """What a task says of itself.

    Raises:
        TypeError: a field of another name.
    """

    finds_links: bool = False
    """Whether the task finds links: it is built with ``links``, the ``LinkFacts`` of the graph, in place of
    ``labels``, and derives from ``LinkTask``."""
    learns_labels: bool = False
    """Whether a graph without labelled training nodes can be refused before the task is built."""
    learns_batches: bool = False
    """Whether batches of training nodes can learn the task, see ``NodeTask``."""
    hold_out: Callable[..., Graph] | None = None
    """Takes edges out of the graph before anything else sees it: a function of the graph and of some of the task's
    keys."""


@runtime_checkable
class StatesTaskContract(Protocol):
    """A task, or the target of one, that says something of itself."""

    contract: TaskContract


class OwnLossStatesAnew:
    """A base of tasks that batches can learn. A class that derives from one and replaces its ``loss`` learns full
    batches alone, unless it states a ``contract`` of its own: its loss may not take the normaliser of a batch."""

    contract = TaskContract(learns_batches=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "loss" in vars(cls) and "contract" not in vars(cls):
            cls.contract = replace(cls.contract, learns_batches=False)


def states(contract: TaskContract) -> Callable[[Target], Target]:
    """Decorate a function that builds a task with the ``contract`` of the task."""

    def decorate(target: Target) -> Target:
        target.contract = contract  # type: ignore[attr-defined]
        return target

    return decorate


def task_contract(task: object) -> TaskContract:
    """What ``task``, a task or the target of one, says of itself."""
    return task.contract if isinstance(task, StatesTaskContract) else TaskContract()
