"""Sigmoid focal loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def _focal(logits: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    """The loss of every row and class. It is finite for any logit, and its gradient for any gamma."""
    is_class = target[:, None] == torch.arange(logits.shape[1], device=logits.device)
    margin = torch.where(is_class, logits, -logits)
    loss = -functional.logsigmoid(margin) * (gamma * functional.logsigmoid(-margin)).exp()
    loss = torch.where(is_class, alpha * loss, (1 - alpha) * loss)
    return loss * weight[target][:, None] if len(weight) else loss


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each logit to `output`; rows are weighted by class, unless `weight` is empty."""
    output.copy_(_focal(input, target, weight, gamma, alpha))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Add the derivative of each logit's loss."""
    logits = input.detach().requires_grad_()
    with torch.enable_grad():
        loss = _focal(logits, target, weight, gamma, alpha).sum()
    grad_input.add_(torch.autograd.grad(loss, logits)[0])
