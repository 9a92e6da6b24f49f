"""Uncertainties of detections from their logits (Section 4 and appendix C of the paper).

Each function maps logits (n, columns) to (n,). All use log-sum-exp and softplus, so that neither a probability of 0 nor a
large logit gives NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax over all columns: classes and background, or the classes of a sigmoid classifier.

    >>> entropy(torch.zeros(1, 2)).item(), entropy(torch.tensor([[1e4, -1e4]])).item()
    (0.6931471824645996, 0.0)
    """
    log_p = logits.log_softmax(dim=-1).clamp(min=torch.finfo(logits.dtype).min)  # 0 times minus infinity is NaN
    return (log_p.exp() * -log_p).sum(dim=-1)


def dempster_shafer(logits: Tensor) -> Tensor:
    """Dempster-Shafer uncertainty: K / (K + sum of exp(logit)), with K the number of columns.

    >>> dempster_shafer(torch.zeros(1, 4)).item(), dempster_shafer(torch.full((1, 4), 1e4)).item()
    (0.5, 0.0)
    """
    return torch.sigmoid(math.log(logits.shape[-1]) - logits.logsumexp(dim=-1))


def average_entropy(logits: Tensor) -> Tensor:
    """The mean binary entropy over the classes of a sigmoid classifier."""
    return _binary_entropy(logits).mean(dim=-1)


def max_class_entropy(logits: Tensor) -> Tensor:
    """The binary entropy of the most likely class of a sigmoid classifier."""
    return _binary_entropy(logits.amax(dim=-1))


def _binary_entropy(logit: Tensor) -> Tensor:
    p = torch.sigmoid(logit)
    return p * functional.softplus(-logit) + torch.sigmoid(-logit) * functional.softplus(logit)


SOFTMAX = {"entropy": entropy, "ds": dempster_shafer}
SIGMOID = {**SOFTMAX, "avg_entropy": average_entropy, "max_class_entropy": max_class_entropy}
