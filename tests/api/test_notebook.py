from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "store.ipynb"


def outputs(notebook: Any) -> list[list[Any]]:
    """What each cell shows, without counters."""
    return [[output.get("data", output.get("text")) for output in cell.get("outputs", [])] for cell in notebook.cells]


def test_the_notebook_runs_and_shows_what_is_committed() -> None:
    committed = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    assert outputs(fresh) == outputs(committed)
    text = NOTEBOOK.read_text()
    for part in ("bench.matches(", "per_class(", "image/svg+xml", "@saod.metric(", "isotonic"):
        assert part in text
