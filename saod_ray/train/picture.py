"""The losses of a training as a picture."""

from __future__ import annotations

import io

import numpy as np

from saod_ray.train.settings import Settings

SMOOTH = 50  # iterations over which a line is averaged


def curve(losses: list[dict[str, float]], settings: Settings) -> bytes:
    """A PNG: the total and its parts over the epochs, smoothed, with the total's every step behind it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch", ylabel="loss", yscale="log")
    at = np.arange(1, len(losses) + 1) * settings.epochs / max(len(losses), 1)
    total = np.array([each["loss"] for each in losses])
    axes.plot(at, total, color="0.85", linewidth=0.6)
    for name in sorted(losses[0], key=lambda key: key != "loss"):
        values = np.array([each.get(name, np.nan) for each in losses])
        emphasis = {"color": "black", "linewidth": 1.8} if name == "loss" else {"linewidth": 1.0}
        axes.plot(at, _smooth(values), label=name, **emphasis)
    axes.set_title(
        f"{settings.detector} on {settings.use_case}, seed {settings.seed}, batches of {settings.batch_size}"
    )
    axes.legend(fontsize="small", ncols=2)
    axes.grid(alpha=0.3)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=110, metadata={"Software": None})
    return sink.getvalue()


def _smooth(values: np.ndarray) -> np.ndarray:
    """The mean of the last iterations, of fewer at the beginning."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - SMOOTH, 0)
    return (sums[last] - sums[first]) / (last - first)
