"""Notebooks show their outputs, hold no logic of their own, and run from the first cell to the last."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.documentation.performed import shortened
from tests.planner.answers.whatif.small import SCENARIO
from truenorth.models.errors import UserError

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PICTURE = "iVBORw0KGgo"  # how a PNG file begins, in base 64
BY_THE_CLOCK = re.compile(r"time_limit|tn\.replay")
SHOWN = {
    "01_first_plan": ["mean slowdown", "<iframe", "critical_path_s", "[]"],
    "02_how_far_is_compass_from_optimal": [
        "<th>information used</th>",
        "<th>ratio to bound</th>",
        "<th>utilisation</th>",
        "<iframe",
        "at_least",
        "valid=True",
    ],
    "03_how_many_servers": ["evidence", "Recommendation", "cheapest mix", "hit rate", "<svg"],
    "04_what_if": ["<th>7000000000</th>", PICTURE],
    "05_bring_your_own_heuristic": ["__main__:WarmFirst", "<iframe", "at_most"],
    "06_plan_against_device": ["mean latency", "predicted", "([], True, True)"],
    "07_swap_often_or_batch_more": [
        "<th>ratio to bound</th>",
        "<iframe",
        "in batches",
        "<th>lower_bound</th>",
        "<th>converged</th>",
    ],
    "08_nine_questions": ["<th>difference_low</th>", "ideal times of the scenario as it was", "interactive", PICTURE],
    "09_how_far_is_backfill_from_optimal": ["ratio to bound", "valid: no plan is below", "<iframe", "evidence"],
}
"""What a reader must see in the outputs."""


def read(path: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def code_in(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_saved_as_a_run_from_the_first_cell_left_them(path: Path) -> None:
    notebook = read(path)
    code = [cell for cell in notebook.cells if code_in(cell)]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(output.output_type != "error" for cell in code for output in cell.outputs)
    shown = [text for cell in code for text in texts(cell.outputs)]
    assert all(any(expected in text for text in shown) for expected in SHOWN[path.stem])
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_public_names_are_imported(path: Path) -> None:
    source = "\n".join(cell.source for cell in read(path).cells if code_in(cell))
    allowed = {"import truenorth as tn", "from truenorth.models.errors import require_extra"}
    assert set(re.findall(r"^(?:from|import) truenorth.*$", source, re.MULTILINE)) <= allowed


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_a_notebook_runs_and_shows_its_answers(path: Path, tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    notebook = read(path)
    saved = {at: tables(cell.outputs) for at, cell in enumerate(notebook.cells) if code_in(cell)}
    for cell in notebook.cells:
        if code_in(cell):
            cell.source = shortened(cell.source)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebooks")}}
    ).execute()
    shown = [text for cell in notebook.cells if code_in(cell) for text in texts(cell.outputs)]
    for expected in SHOWN[path.stem]:
        assert any(expected in text for text in shown), expected
    for at, cell in enumerate(notebook.cells):
        if BY_THE_CLOCK.search(cell.source):
            break  # from here on what is shown depends on time
        assert tables(cell.get("outputs", [])) == saved.get(at, []), "make docs writes the outputs anew"


def run_cells(folder: Path, *sources: str) -> list[nbformat.NotebookNode]:
    """Return the outputs of cells, one each, that may fail."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True, resources=resources).execute()
    return [cell.outputs[0] for cell in notebook.cells]


INTERRUPTED = """
import signal
plan = tn.plan("small.yaml", time_limit="60 s", workers=1, watch=lambda known: known.value and ask_once())
plan.interrupted, plan.timeline is not None, len(plan.incumbents) > 0
"""
ASKING = """
import functools
ask_once = functools.cache(lambda: signal.raise_signal(signal.SIGINT))
ask_once.__name__
"""
WATCHED = """
import time
from truenorth.planner.command.console import Line
with Line(lambda known, elapsed_s: "so far").shown():
    time.sleep(1.5)
"""


@pytest.mark.filterwarnings("default")
def test_a_cell_says_errors_in_a_line_keeps_what_an_interrupt_found_and_renews_a_line(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    missing, _, kept, line = run_cells(
        tmp_path, "import truenorth as tn; tn.load('none.yaml')", ASKING, INTERRUPTED, WATCHED
    )
    assert missing.traceback == [
        "InputError: none.yaml:1: file: cannot be read: No such file or directory; allowed is a readable file"
    ]
    assert kept.data["text/plain"] == "(True, True, True)"
    assert line.data["text/plain"] == ""  # it was there, and is gone


def test_what_needs_pytorch_says_so_in_its_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truenorth.models.errors.find_spec", lambda module: None)
    first = next(cell.source for cell in read(ROOT / "notebooks/06_plan_against_device.ipynb").cells if code_in(cell))
    with pytest.raises(UserError, match=r"^PyTorch is not installed; this adds it: .* -m pip install .*\[devices\]'?$"):
        exec(first, {})  # noqa: S102


def tables(outputs: list[nbformat.NotebookNode]) -> list[str]:
    """Return the tables among outputs."""
    found = [str(output.get("data", {}).get("text/html", "")) for output in outputs]
    return [text for text in found if "<table" in text and "<iframe" not in text]


def texts(outputs: list[nbformat.NotebookNode]) -> list[str]:
    """Return everything that outputs say, in whichever form."""
    said = []
    for output in outputs:
        said += [str(text) for text in output.get("data", {}).values()] + [str(output.get("text", ""))]
    return said
