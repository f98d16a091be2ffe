"""The notebook runs, and what it shows has the form of what is kept in it.

Where results look different now, ``KANON_WRITE_PAGES=1`` keeps those of this run: read them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "frame.ipynb"
_HEADING = r"<th[^>]*>((?!buckets_of_size_)[^<]*[a-z][^<]*)</th>"


def run_cell(source: str, names: dict[str, Any]) -> list[nbformat.NotebookNode]:
    """Run a cell as a notebook does: what it prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "notebook", "exec"), names)  # noqa: S102  # our own notebook
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)  # noqa: S307
    outputs = []
    if printed.getvalue():
        outputs.append(nbformat.v4.new_output("stream", name="stdout", text=printed.getvalue()))
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        outputs.append(nbformat.v4.new_output("display_data", data))
    return outputs


def form(outputs: list[nbformat.NotebookNode]) -> list[object]:
    """What does not differ from run to run: kinds of outputs, and the headings of tables.

    Which sizes buckets have is drawn.
    """
    return [
        (output["output_type"], re.findall(_HEADING, output.get("data", {}).get("text/html", "")))
        for output in outputs
    ]


@pytest.mark.long
def test_the_notebook_runs(
    database: str, private_cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KANON_DSN", database)
    monkeypatch.setenv("KANON_DIR", str(private_cluster))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    names: dict[str, Any] = {}
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown[cell.id] = run_cell(cell.source, names)
    if os.environ.get("KANON_WRITE_PAGES"):
        for number, (name, outputs) in enumerate(shown.items(), start=1):
            (cell,) = (cell for cell in notebook.cells if cell.id == name)
            cell.outputs, cell.execution_count = outputs, number
        nbformat.write(notebook, NOTEBOOK)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert form(shown[cell.id]) == form(cell.outputs)
    html = [
        output["data"].get("text/html", "")
        for outputs in shown.values()
        for output in outputs
        if output.output_type == "display_data"
    ]
    assert sum("records" in text for text in html) >= 3
    assert any("5-anonymity" in text for text in html)
