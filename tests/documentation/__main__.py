"""``make docs``: write the pages that follow from the code; run what all pages and notebooks show, and write it back.

Pages keep what depends on time, which has its machine and date beside it; notebooks are run as they are.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.documentation.pages import ROOT, pages, with_shown
from tests.documentation.performed import perform
from tests.documentation.reference import write_pages


def renew_page(page: Path) -> bool:
    """Write what a page's commands and snippets say now; say whether that is something else."""
    text = before = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for step, said, repeats in perform(text, page.name, Path(folder)):
            lines = step.renewed(said) if repeats else list(step.shown)
            if lines != list(step.shown):
                text = with_shown(text, step, lines)
    if text != before:
        page.write_text(text)
    return text != before


def renew_notebook(path: Path) -> None:
    """Run a notebook and save what its cells show, but for what the kernel says beside it."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "notebooks")
        here.mkdir()
        Path(folder, "experiments").symlink_to(ROOT / "experiments")
        NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(here)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _is_shown(output)]
    notebook.metadata = {name: notebook.metadata[name] for name in ("kernelspec", "language_info")}
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def _is_shown(output: nbformat.NotebookNode) -> bool:
    """Say whether an output is more than warnings, or a line of progress that has gone."""
    return output.get("name") != "stderr" and output.get("data") != {"text/plain": ""}


if __name__ == "__main__":
    write_pages()
    for page in pages():
        if renew_page(page):
            print(f"{page.relative_to(ROOT)} is renewed")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        renew_notebook(path)
