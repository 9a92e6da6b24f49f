"""A run on a cluster that grows and shrinks, as a process of its own, because a process keeps the first token it has:
python autoscaled.py ADDRESS DATA STORE prints how many nodes with GPUs there were at each receipt, and at the end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ray
from toy_runs import done, job

from saod_ray.engine.cluster import connected
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions

PATIENCE = 90.0  # seconds until nodes are gone


def nodes_with_gpus() -> int:
    return sum(node["Alive"] and node["Resources"].get("GPU", 0) > 0 for node in ray.nodes())


def main(address: str, data: str, store: str) -> None:
    sizes = ResourceOptions(actors=(1, 2), gpus=1.0, batch_size=2, unit_images=2)
    node_counts: list[int] = []
    with connected(address):
        before = nodes_with_gpus()
        work = job(Path(data), Path(store), {"a": {"seconds": 0.8}})
        receipts = done(
            work,
            sizes,
            options=PlanOptions(4),
            on_receipt=lambda receipt: node_counts.append(nodes_with_gpus()),
            may_grow=True,
        )
        until = time.monotonic() + PATIENCE
        while nodes_with_gpus() and time.monotonic() < until:
            time.sleep(0.5)
        after = nodes_with_gpus()
    images = sum(receipt.images for receipt in receipts)
    print(json.dumps({"before": before, "during": node_counts, "after": after, "images": images}))


if __name__ == "__main__":
    main(*sys.argv[1:])
