"""Size of shards and time to scan them, compared with the same detections as COCO JSON: python -m benchmarks.shards."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.ap import medium_set
from benchmarks.measure import workspace
from saod_ray.store.ledger import Shard
from saod_ray.store.store import Store


def main() -> None:
    medium = medium_set()
    store = Store.open(str(medium.store))
    shards = store.shards("a", "id")
    scan = min(_scan(store, shards, None) for _ in range(3))
    scored = min(_scan(store, shards, ["label", "box", "score"]) for _ in range(3))
    began = time.process_time()
    rows = json.loads(medium.detections.read_bytes())
    load = time.process_time() - began
    shard_bytes = sum(shard.bytes for shard in shards)
    size = medium.detections.stat().st_size
    print(f"{medium.count:,} detections with two uncertainties")
    print(
        f"shards {shard_bytes / 1e6:7.1f} MB, scanned in {scan:6.3f} CPU-s, boxes, labels and scores alone in {scored:.3f}"
    )
    print(
        f"JSON   {size / 1e6:7.1f} MB, loaded in  {load:6.3f} CPU-s: {size / shard_bytes:.1f} times the bytes, {load / scan:.0f} and {load / scored:.0f} times the CPU"
    )
    for row in rows:
        del row["uncertainty"]
    bare = workspace("medium") / "bare.json"
    bare.write_text(json.dumps(rows))
    without = _without_uncertainties(store, shards)
    print(
        f"without uncertainties: shards {without / 1e6:.1f} MB, JSON {bare.stat().st_size / 1e6:.1f} MB: {bare.stat().st_size / without:.1f} times"
    )
    Path(bare).unlink()


def _scan(store: Store, shards: list[Shard], columns: list[str] | None) -> float:
    began = time.process_time()
    for shard in shards:
        store.read_shard("a", "id", shard, columns)
    return time.process_time() - began


def _without_uncertainties(store: Store, shards: list[Shard]) -> int:
    from dataclasses import replace

    total = 0
    for shard in shards:
        rows = store.read_shard("a", "id", shard)
        columns = {key: values for key, values in rows.columns.items() if key in ("label", "box", "score")}
        total += replace(rows, columns=columns).to_parquet().size
    return total


if __name__ == "__main__":
    main()
