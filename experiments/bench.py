"""What benchmarks share: options from a function's parameters, and one question of many instances, row by row.

What studies share: cells that are kept as they are computed, the README's tables, and a canvas for pictures.

A study that takes hours fills results.csv cell by cell, and goes on where it was stopped. A row is a flat dataclass
whose first fields say what was asked; cells that the file holds are not computed again.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from inspect import Parameter, getdoc, signature
from pathlib import Path
from string import Formatter
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from truenorth.executor import instance_for, parse_policy, simulate
from truenorth.models import Instance, Objective, Timeline
from truenorth.models.errors import UserError
from truenorth.models.objective import reported_bound, reported_value
from truenorth.models.scenario import InputError, write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure

Asked = TypeVar("Asked")
Question = Callable[..., object]
Figures = Mapping[str, Any]
"""What is known of an instance, by name."""


def ask(questions: Question | Mapping[str, Question], arguments: Sequence[str] | None = None) -> Any:
    """Call a function, or the one of several that the command line names, with the options that it gives.

    Parameters without a default are arguments, truth values are switches, tuples take any number of words. Annotations
    may say more: words for ``--help``, and in a tuple or the like what is allowed. What the user can mend ends with 2.
    """
    given, several = ({}, questions) if isinstance(questions, Mapping) else ({"ask": questions}, {})
    module = sys.modules[next(iter({**given, **several}.values())).__module__]
    *_, folder, name = (module.__spec__.name if module.__spec__ else module.__name__).split(".")
    own = folder if name in ("__main__", "study") else name
    parser = argparse.ArgumentParser(prog=f"python -m experiments {own}", description=module.__doc__)
    for question in given.values():
        _take(parser, question)
    if several:
        commands = parser.add_subparsers(required=True, metavar="|".join(several))
        for word, question in several.items():
            _take(
                commands.add_parser(word, help=(getdoc(question) or "").partition("\n")[0].replace("%", "%%")), question
            )
    options = vars(parser.parse_args(arguments))
    try:
        return options.pop("ask")(**options)
    except UserError as error:
        raise parser.exit(2, f"{error}\n") from None


def _take(parser: argparse.ArgumentParser, question: Question) -> None:
    """Let a parser take the parameters of a function, which it is to call."""
    hints = get_type_hints(question, include_extras=True)
    for name, parameter in signature(question).parameters.items():
        kind, more = hints[name], []
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
        words: dict[str, Any] = {"help": " ".join(each for each in more if isinstance(each, str)).replace("%", "%%")}
        if allowed := [each for each in more if not isinstance(each, str)]:
            words["choices"] = allowed[0]
        needed = parameter.default is Parameter.empty
        if kind is bool:
            words["action"] = "store_true"
        elif get_origin(kind) is tuple:
            words |= {"type": get_args(kind)[0], "nargs": "*"}
        else:
            words["type"] = next((each for each in get_args(kind) if each is not NoneType), kind)
        if needed:
            parser.add_argument(name, **words)
        else:
            flags = ["-o"] * (name == "output") + [f"--{name.replace('_', '-')}"]
            parser.add_argument(*flags, dest=name, default=parameter.default, **words)
    parser.set_defaults(ask=question)


def bench(
    instances: Iterable[tuple[str, Asked]], question: Callable[[Asked], Figures | None], row: str, head: str = ""
) -> list[Figures]:
    """Ask the same of every instance, and print a row as soon as it is answered.

    Parameters
    ----------
    instances
        Each with its name.
    question
        Returns figures by name, or None where there is nothing to say.
    row
        Columns of the table: a format of figures by name, `name` among them; what is None is shown as a dash.
    head
        Line above the first row.

    Returns
    -------
    list[Figures]
        The figures of every row.
    """
    if head:
        print(head, flush=True)
    found: list[Figures] = []
    for name, instance in instances:
        figures = question(instance)
        if figures is not None:
            found.append({"name": name, **figures})
            print(_Cells().vformat(row, (), found[-1]), flush=True)
    return found


class _Cells(Formatter):
    """Formats that show nothing as a dash."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a cell."""
        if value is None:
            return format("-", format_spec.partition(".")[0].rstrip("defgs%,"))
        return format(value, format_spec)


def plan_window(instance: Instance, objective: Objective, time_limit_s: float, **options: Any) -> dict[str, Any]:
    """Plan an instance as a user would, and return its figures; None where there is no plan or no bound.

    Parameters
    ----------
    options
        More of the `Budget`.
    """
    from truenorth.planner.answers.plan import solve  # a GPU host has no solver
    from truenorth.solvers.budget import Budget

    cpu_s = time.process_time()
    result = solve(instance, objective, Budget(time_limit_s, **options))
    return {
        "jobs": len(instance.jobs),
        "tasks": instance.n_tasks,
        "status": result.status,
        "value": None if result.value is None else reported_value(objective, result.value),
        "bound": None if result.lower_bound is None else reported_bound(objective, result.lower_bound),
        "gap": result.gap,
        "method": result.bound_method,
        "seconds": result.runtime_s,
        "cpu_s": time.process_time() - cpu_s,
        "result": result,
    }


def carry_out(on: Instance, policy: str, seed: int = 0) -> tuple[Instance, Timeline]:
    """Return what a policy makes of an instance, and the instance as it sees it."""
    parsed = parse_policy(policy)
    own = instance_for(on, parsed)
    return own, simulate(own, parsed, seed)


Row = TypeVar("Row", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Study(Generic[Row]):
    """A question that is asked of cells once, reproducibly.

    Parameters
    ----------
    row
        Class of the rows.
    asked
        How many of its first fields say what was asked: the cell.
    measure
        Computes the rows of a cell, whose parts are its arguments.
    tables
        From all rows: the tables that the README shows.
    results
        The results file's name.
    """

    row: type[Row]
    asked: int
    measure: Callable[..., Iterable[Row]]
    tables: Sequence[Callable[[Sequence[Row]], str]] = ()
    results: str = "results.csv"

    def run(self, cells: Iterable[tuple[Any, ...]], folder: Path) -> list[Row]:
        """Compute what a folder lacks of some cells; print the tables, and return their rows."""
        rows = self.fill(cells, folder)
        for table in self.tables:
            print(table(rows))
        return rows

    def fill(self, cells: Iterable[tuple[Any, ...]], folder: Path) -> list[Row]:
        """Compute what a folder lacks of some cells, and return their rows in the order of the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path, wanted = folder / self.results, list(cells)
        rows = read(path, self.row) if path.exists() else []
        known = set(map(self.cell, rows))
        for cell in wanted:
            if cell not in known:
                rows += self.measure(*cell)
                write(path, rows)
        chosen = set(wanted)
        return [row for row in rows if self.cell(row) in chosen]

    def cell(self, row: Row) -> tuple[Any, ...]:
        """Return what was asked."""
        return tuple(getattr(row, field.name) for field in fields(row)[: self.asked])


def read(path: Path, row: type[Row]) -> list[Row]:
    """Return the rows of a results file; a field that is empty is None.

    Raises
    ------
    InputError
        If the file is another table, or a row of it is damaged.
    """
    known, found = TypeAdapter(row), list[Row]()
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        if table.fieldnames != [field.name for field in fields(row)]:
            raise InputError(str(path), 1, "header", "is another table's; allowed is a folder without such a file")
        for line, entry in enumerate(table, 2):
            try:
                found.append(known.validate_python({name: text or None for name, text in entry.items()}))
            except ValidationError as error:
                first = error.errors()[0]
                problem = f"{first['msg']}; allowed is a row as this command writes it"
                raise InputError(str(path), line, str(first["loc"][0]), problem) from None
    return found


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a results file, whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(rows[0])], lineterminator="\n")
    table.writeheader()
    table.writerows(map(asdict, rows))
    write_atomically(path, text.getvalue())


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = " --- |") -> str:
    """Return a table as a README shows it; `align` is the rule below every head."""
    rule = f"|{' --- |' if align != ' --- |' else align}{align * (len(heads) - 1)}"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def shown(value: float | None, form: str) -> str:
    """Return a cell, empty where nothing is known."""
    return "" if value is None else format(value, form)


def canvas(width: float, height: float) -> Figure:
    """Return an empty picture, of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def draw(figure: Figure, path: Path) -> None:
    """Write a picture."""
    from truenorth.planner.show.canvas import png

    write_atomically(path, png(figure))
