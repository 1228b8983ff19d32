"""An independent GCN: dense, float64, one process, numpy only, with its gradients written out by hand.

Nothing here calls the package. The formulas are those of Miao et al. (2023), section 2, with bias and dropout D added:

    Z^l = A (D^l * H^(l-1)) W^l + b^l,    H^l = relu(Z^l)
"""

from dataclasses import dataclass

import numpy as np


def philox_words(node_id: np.ndarray, num_columns: int, layer: int, epoch: int, seed: int) -> np.ndarray:
    """(n, num_columns) random words: Philox4x32-10 of counter (node, column // 4, layer, epoch) and key seed."""
    groups = np.arange(-(-num_columns // 4), dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    shape = (len(node_id), len(groups))
    c0 = np.broadcast_to(node_id.astype(np.uint64)[:, None], shape)
    c1 = np.broadcast_to(groups, shape)
    c2, c3 = np.full(shape, layer, np.uint64), np.full(shape, epoch, np.uint64)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & mask, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return np.stack([c0, c1, c2, c3], axis=2).reshape(len(node_id), -1)[:, :num_columns]


def dropout_scale(num_nodes: int, num_columns: int, p: float, layer: int, epoch: int, seed: int) -> np.ndarray:
    """(num_nodes, num_columns): 0 where dropped, 1 / (1 - p) elsewhere."""
    words = philox_words(np.arange(num_nodes), num_columns, layer, epoch, seed)
    return (words >= round(p * 2**32)) / (1 - p)


def normalize(dense: np.ndarray, normalization: str, self_loops: bool = True) -> np.ndarray:
    """(n, n) A, entry by entry."""
    a = dense.astype(np.float64).copy()
    n = len(a)
    if self_loops:
        for i in range(n):
            a[i, i] = 1.0
    out = np.zeros_like(a)
    degree = [sum(a[i]) for i in range(n)]
    for i in range(n):
        for j in range(n):
            if a[i, j] == 0:
                continue
            if normalization == "sym":
                out[i, j] = a[i, j] / np.sqrt(degree[i]) / np.sqrt(degree[j]) if degree[i] and degree[j] else 0.0
            elif normalization == "row":
                out[i, j] = a[i, j] / degree[i] if degree[i] else 0.0
            else:
                out[i, j] = a[i, j]
    return out


def learning_rate(epoch: int, epochs: int, lr: float, schedule: dict) -> float:
    """The learning rate of ``epoch``, from 1, by the formula of the ``schedule`` of a configuration."""
    t, warmup, start = epoch - 1, schedule["warmup_epochs"], schedule["warmup_start"]
    if t < warmup:
        return lr * (start + (1 - start) * t / warmup)
    t -= warmup
    length = schedule.get("T_max") or schedule.get("total_iters") or epochs - warmup
    if schedule["name"] == "cosine":
        return schedule["eta_min"] + (lr - schedule["eta_min"]) * (1 + np.cos(np.pi * t / length)) / 2
    if schedule["name"] == "linear":
        first, last = schedule["start_factor"], schedule["end_factor"]
        return lr * (first + (last - first) * min(1, t / length))
    return (
        lr
        * {
            "constant": lambda: 1.0,
            "step": lambda: schedule["gamma"] ** (t // schedule["step_size"]),
            "exponential": lambda: schedule["gamma"] ** t,
        }[schedule["name"]]()
    )


@dataclass
class DenseGCN:
    """Parameters ``weights[l]`` (f_in, f_out) and ``biases[l]`` (f_out,), changed in place by ``train``."""

    adj: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train_mask: np.ndarray
    weights: list[np.ndarray]
    biases: list[np.ndarray]
    dropout: float
    seed: int
    input_dropout: float | None = None  # rate of the first layer; None: ``dropout``

    def forward(self, epoch: int | None) -> tuple[np.ndarray, list, list, list]:
        """Logits, and for each layer its dropped input, dropout scale and Z. ``epoch`` None: evaluation."""
        h, inputs, scales, outputs = self.features.astype(np.float64), [], [], []
        for layer, (w, b) in enumerate(zip(self.weights, self.biases)):
            if layer:
                h = np.maximum(outputs[-1], 0)
            rate = self.dropout if layer or self.input_dropout is None else self.input_dropout
            scale = np.ones_like(h)
            if epoch is not None and rate:
                scale = dropout_scale(*h.shape, rate, layer, epoch, self.seed)
            h = h * scale
            inputs.append(h)
            scales.append(scale)
            outputs.append(self.adj @ h @ w + b)
        return outputs[-1], inputs, scales, outputs

    def loss_and_gradients(self, epoch: int | None) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
        logits, inputs, scales, outputs = self.forward(epoch)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_prob = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        rows = np.flatnonzero(self.train_mask)
        loss = -log_prob[rows, self.labels[rows]].mean()
        g = np.zeros_like(logits)
        g[rows] = np.exp(log_prob[rows])
        g[rows, self.labels[rows]] -= 1
        g /= len(rows)
        grad_w, grad_b = [], []
        for layer in reversed(range(len(self.weights))):
            grad_b.insert(0, g.sum(axis=0))
            back = self.adj.T @ g
            grad_w.insert(0, inputs[layer].T @ back)
            if layer:
                g = (back @ self.weights[layer].T) * scales[layer] * (outputs[layer - 1] > 0)
        return loss, grad_w, grad_b

    def train(
        self,
        steps: int,
        optimizer: str,
        lr: float | list[float],
        weight_decay: float,
        momentum: float = 0.0,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ) -> list[float]:
        """Train with SGD or Adam (Kingma and Ba, 2015) and an L2 penalty, or AdamW (Loshchilov and Hutter, 2019).

        Args:
            lr: one for all steps, or one for each.
            clip_norm: largest norm of all gradients together.

        Returns:
            the loss before each step.
        """
        parameters = [*self.weights, *self.biases]
        first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
        rates = lr if isinstance(lr, list) else [lr] * steps
        losses = []
        for step, rate in enumerate(rates, 1):
            loss, grad_w, grad_b = self.loss_and_gradients(step)
            losses.append(loss)
            gradients = [*grad_w, *grad_b]
            norm = np.sqrt(sum((g * g).sum() for g in gradients))
            if clip_norm is not None and norm > clip_norm:
                gradients = [g * (clip_norm / norm) for g in gradients]
            for p, g, m, v in zip(parameters, gradients, first, second):
                decay = weight_decay if decay_biases or p.ndim == 2 else 0.0
                if optimizer == "adamw":
                    p -= rate * decay * p
                else:
                    g = g + decay * p
                if optimizer == "sgd":
                    m *= momentum
                    m += g
                    p -= rate * m
                else:
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    p -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        return losses
