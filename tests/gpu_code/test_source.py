"""What the source of the kernels in Triton may not contain, and who may not import it. These tests need neither Triton
nor a GPU."""

import ast
import subprocess
import sys

import pytest

from tests.gpu_code.source import ROOT, kernels


def text_defaults(kernel: ast.FunctionDef) -> list[str]:
    """The defaults of the parameters that are texts."""
    defaults = [*kernel.args.defaults, *filter(None, kernel.args.kw_defaults)]
    return [node.value for node in defaults if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_no_default_of_a_kernel_is_a_text() -> None:
    """Triton 3.4 to 3.6 cannot compile a call that leaves a constexpr parameter at its default, if that is a text:
    "'str' object has no attribute 'type'". Triton 3.7, with which most tests run, can."""
    texts = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    files = {path: [*kernels(text)] for path, text in texts.items() if "triton.jit" in text}
    assert sum(map(len, files.values())) > 50, "the kernels are not found"
    wrong = [(path.name, node.name) for path, functions in files.items() for node in functions if text_defaults(node)]
    assert not wrong


def test_such_a_default_would_be_found() -> None:
    source = "@triton.jit(do_not_specialize=['n'])\ndef f(n, KIND: tl.constexpr = 'ieee', *, SIZE=''):\n    pass\n"
    (kernel,) = kernels(f"import triton\n{source}def g(kind='x'):\n    pass\n")
    assert kernel.name == "f" and text_defaults(kernel) == ["ieee", ""]


@pytest.mark.sample(2)
def test_whoever_trains_on_a_cpu_imports_no_triton() -> None:
    """A fresh process computes a dropout mask, a product with its activation, gradients and a loss."""
    script = """
import sys, torch
from fullgnn.nn import Activation, Dropout, cross_entropy
from fullgnn.nn.linear import linear
assert "triton" not in sys.modules, "torch imports it by itself"
x, drop = torch.ones(500, 100, requires_grad=True), Dropout(0.5, layer=0, seed=1)
y = linear(x, torch.ones(100, 64, requires_grad=True), torch.ones(64), Activation(True, drop.mask(torch.arange(500))))
y.backward(cross_entropy(y, torch.zeros(500, dtype=torch.int64), 1.0)[1])
assert "numba" in sys.modules and "triton" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
