"""What a task says of itself decides how it is built, and not the name of a parameter."""

from typing import Any

import pytest

from fullgnn.graph import Graph
from fullgnn.graph.datasets import karate
from fullgnn.tasks import LinkTask, MultiClass, TaskContract, held_out, learns_labels, states, takes_links
from fullgnn.tasks import task_contract as said
from tests.cases import config


class Links(LinkTask):
    """A user's task of links, which takes what it is given."""

    def __init__(self, *given: Any, **keys: Any):
        pass


class Nodes(MultiClass):
    """A user's task of nodes with a key of its own that is named ``links``."""

    def __init__(self, labels: Any, links: int = 3):
        pass


CALLS: list[int] = []


def without_edges(graph: Graph, number: int) -> Graph:
    CALLS.append(number)
    return graph


@states(TaskContract(finds_links=True, hold_out=without_edges))
def made(**keys: Any) -> Links:
    return Links()


def plain(labels: Any, links: int = 3) -> Nodes:
    return Nodes(labels)


def node(target: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.{target.__name__}", "name": "own", "number": 3}


def test_a_misspelt_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="find_links"):
        TaskContract(find_links=True)  # type: ignore[call-arg]


def test_a_task_finds_links_if_it_says_so() -> None:
    assert [takes_links(node(target)) for target in (Links, made, Nodes, plain)] == [True, True, False, False]
    names = ("link_ranking", "link_prediction", "node_classification", "node_regression")
    tasks = {name: config(f"task={name}", *(["model=lightgcn"] if "link" in name else [])).task for name in names}
    assert [takes_links(task) for task in tasks.values()] == [True, True, False, False]
    assert [learns_labels(task) for task in tasks.values()] == [False, False, True, True]
    assert not learns_labels(node(Nodes))


def test_edges_are_held_out_as_the_contract_says() -> None:
    graph = karate.load(train_per_class=4, num_val=8, seed=0)
    assert held_out(node(Links), graph) is graph and held_out(node(made), graph) is graph
    assert CALLS == [3]  # with the key of the task


class SameLoss(MultiClass):
    pass


class OwnLoss(MultiClass):
    def loss(self, output, targets):  # type: ignore[no-untyped-def, override]
        return super().loss(output, targets)


class OwnBatches(OwnLoss):
    contract = TaskContract(learns_batches=True)

    def loss(self, output, targets, total=None):  # type: ignore[no-untyped-def, override]
        return MultiClass.loss(self, output, targets, total)


class Again(OwnBatches):
    pass


def test_a_loss_of_ones_own_states_anew_that_batches_learn_it() -> None:
    learns = [said(task).learns_batches for task in (MultiClass, SameLoss, OwnLoss, OwnBatches, Again)]
    assert learns == [True, True, False, True, True]
