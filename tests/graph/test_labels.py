"""Labels in every form that people have: one rule, and errors whose cure works as it is written."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.labels import MAX_CLASSES

CLASSES = np.array([0, 1, 2, 0, 1, 2])
TEXT = np.array(["a", "b", "c", "a", "b", "c"])


def labelled(labels: Any, **others: Any) -> Graph:
    return Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=6, labels=labels, **others)


ACCEPTED: dict[str, tuple[Any, Any]] = {
    "list": (CLASSES.tolist(), CLASSES),
    "small integers": (CLASSES.astype(np.uint8), CLASSES),
    "integers in a column": (CLASSES[:, None], CLASSES),
    "booleans": (CLASSES == 1, (CLASSES == 1).astype(np.int64)),
    "booleans in a column": ((CLASSES == 1)[:, None], (CLASSES == 1).astype(np.int64)),
    "tensor": (torch.tensor(CLASSES), CLASSES),
    "tensor in a column": (torch.tensor(CLASSES)[:, None], CLASSES),
    "one-hot rows": (np.eye(3, dtype=int)[CLASSES], np.eye(3, dtype=np.int8)[CLASSES]),
    "booleans in columns": (np.eye(3, dtype=bool)[CLASSES], np.eye(3, dtype=np.int8)[CLASSES]),
    "floats": (CLASSES / 2, CLASSES / 2),
    "floats in a column": (CLASSES[:, None] / 2, CLASSES / 2),
    "floats in columns": (np.eye(3)[CLASSES] / 2, np.eye(3)[CLASSES] / 2),
    "whole floats": (CLASSES.astype(float), CLASSES.astype(float)),
    "unknown floats": ([0, 1, np.nan, 0, 1, 2.5], np.array([0, 1, np.nan, 0, 1, 2.5])),
    "bfloat16 tensor": (torch.tensor(CLASSES).bfloat16(), CLASSES.astype(np.float32)),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_the_dtype_says_what_labels_are(case: str) -> None:
    given, stored = ACCEPTED[case]
    labels = labelled(given).labels
    assert labels.dtype == stored.dtype
    np.testing.assert_array_equal(labels, stored)


REFUSED: dict[str, tuple[Any, str, Any]] = {
    "list of text": (TEXT.tolist(), "labels hold text", CLASSES),
    "text": (TEXT, "labels hold text", CLASSES),
    "text in a column": (TEXT[:, None], "labels hold text", CLASSES),
    "bytes": (TEXT.astype("S"), "labels hold text", CLASSES),
    "text of digits": (CLASSES.astype(str), "labels hold text", CLASSES),
    "text as objects": (TEXT.astype(object), "labels hold text", CLASSES),
    "dates": (CLASSES.astype("datetime64[D]"), "labels hold dates", CLASSES),
    "integers as objects": (CLASSES.astype(object), "labels hold objects of type int", CLASSES),
    "floats as objects": ((CLASSES / 2).astype(object), "labels hold objects of type float", CLASSES / 2),
    "None": ([0, 1, None, 0, 1, 2], "None becomes NaN, unknown", np.array([0, 1, np.nan, 0, 1, 2])),
    "wide unsigned": (CLASSES.astype(np.uint64), "labels has dtype uint64", CLASSES),
    "a row": (CLASSES[None], r"labels has shape \(1, 6\)", CLASSES),
    "numbers in columns": (
        CLASSES.repeat(2).reshape(6, 2),
        "labels of 2 columns hold 2",
        CLASSES.repeat(2).reshape(6, 2),
    ),
    "classes below 0": (CLASSES - 2, "label -2 is out of range", CLASSES),
}
"""What is given, what the error says, and what its cure gives."""


@pytest.mark.parametrize("case", REFUSED)
def test_the_error_has_the_numpy_call_that_mends_the_labels(case: str) -> None:
    given, message, expected = REFUSED[case]
    with pytest.raises(DataError, match=message) as error:
        labelled(given)
    assert "\n" not in str(error.value)
    match = re.search(r"pass (numpy\.[^;]*)", str(error.value))
    assert match is not None, error.value
    mended = labelled(eval(match[1], {"numpy": np, "labels": given, "float": float, "int": int}))
    np.testing.assert_array_equal(mended.labels, expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, "a", 1.5, 2, 0, 1], "labels hold text"),  # numpy makes all of them text
        (np.array([0, "a", 1, 2, 0, None], object), "objects of type NoneType, int, str, .*give each node a class"),
        (CLASSES + 1j, "labels hold complex128, .*give each node a class"),
        (dict(enumerate(CLASSES)), "labels is a dict: pass a list or an array, one class per node"),
        (iter(CLASSES), "labels is a .*iterator: pass a list or an array"),
    ],
)
def test_what_no_call_mends_is_named(labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        labelled(labels)
    assert "\n" not in str(error.value)


def test_whole_floats_stand_for_classes_below_num_classes() -> None:
    facts = labelled(CLASSES.astype(float), train_mask=CLASSES == 1).label_facts()
    assert facts.integral and facts.num_classes == 3 and facts.class_counts == (0, 2, 0)
    assert not labelled(CLASSES.astype(float), num_classes=2).label_facts().integral
    assert not labelled(CLASSES - 1.0).label_facts().integral


@pytest.mark.parametrize("kind", [int, float])
def test_large_whole_numbers_are_values_and_are_not_counted_by_class(kind: type) -> None:
    """Such as prices or times, which a regression learns: an array of counts for each number would fill the memory."""
    facts = labelled(np.full(6, 10**12, dtype=kind), train_mask=[True] * 6).label_facts()
    assert facts.num_classes > MAX_CLASSES and facts.class_counts == () and facts.train_sum == (6e12,)
