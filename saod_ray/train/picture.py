"""A chart of the losses of a training."""

from __future__ import annotations

import io

import numpy as np

from saod_ray.train.settings import TrainSettings

SMOOTH = 50  # iterations


def loss_curve(losses: list[dict[str, float]], settings: TrainSettings) -> bytes:
    """A PNG of the total loss and its parts over the epochs, smoothed, with the raw total in grey."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch", ylabel="loss", yscale="log")
    epochs = np.arange(1, len(losses) + 1) * settings.epochs / max(len(losses), 1)
    total = np.array([step["loss"] for step in losses])
    axes.plot(epochs, total, color="0.85", linewidth=0.6)
    for name in sorted(losses[0], key=lambda key: key != "loss"):
        values = np.array([step.get(name, np.nan) for step in losses])
        emphasis = {"color": "black", "linewidth": 1.8} if name == "loss" else {"linewidth": 1.0}
        axes.plot(epochs, _smooth(values), label=name, **emphasis)
    axes.set_title(
        f"{settings.detector} on {settings.use_case}, seed {settings.seed}, batches of {settings.batch_size}"
    )
    axes.legend(fontsize="small", ncols=2)
    axes.grid(alpha=0.3)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=110, metadata={"Software": None})
    return sink.getvalue()


def _smooth(values: np.ndarray) -> np.ndarray:
    """The moving average over the last SMOOTH iterations; over fewer at the beginning."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - SMOOTH, 0)
    return (sums[last] - sums[first]) / (last - first)
