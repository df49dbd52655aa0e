"""In a notebook answers show themselves, and errors are a line: IPython is told how, by the names of types."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from typing import Any

from truenorth.models.errors import UserError
from truenorth.models.workload import Workflow

Html = Callable[[Any], str]


def register() -> None:
    """Tell the running IPython, if there is one, how answers look; types are not imported for it."""
    ipython = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if ipython is None:
        return
    formatter = ipython.display_formatter.formatters["text/html"]
    for (module, name), show in _SHOWN.items():
        formatter.for_type_by_name(module, name, show)
    pictures = ipython.display_formatter.formatters["image/png"]
    pictures.for_type_by_name("matplotlib.figure", "Figure", _png)
    ipython.set_custom_exc((UserError,), _say)


def _png(figure: Any) -> bytes:
    from truenorth.planner.show.canvas import png

    return png(figure)


def _say(
    ipython: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None
) -> None:
    """Say what a person has to know of an error of theirs, in a line; ``%tb`` shows where it came from."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    ipython._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


def html(answer: object) -> str:
    """Return what a notebook shows of an answer.

    Raises
    ------
    KeyError
        If nothing says how.
    """
    kind = type(answer)
    return _SHOWN[kind.__module__, kind.__name__](answer)


def _facts(summary: str, answer: Any) -> str:
    """Return a summary of an answer; it is imported on demand, for rich and every answer come with it."""
    from truenorth.planner.show import summaries
    from truenorth.planner.show.table import facts_html

    return facts_html(getattr(summaries, summary)(answer))


def _chart(answer: Any) -> str:
    from truenorth.planner.show.report import chart

    return chart(answer)._repr_html_() if answer.shown else ""


def _rows(answer: Any) -> str:
    from truenorth.planner.show.saving import frame

    return str(frame(answer).round(4).to_html())


def _table(answer: Any) -> str:
    proof = f"<p>{escape(answer.proof)}</p>" if hasattr(answer, "proof") else ""
    return f"{_rows(answer)}{proof}{_warning(answer)}<p>{escape(answer.note)}</p>"


def _compared(answer: Any) -> str:
    from truenorth.planner.show.comparison import comparison_table
    from truenorth.planner.show.table import html as table_html

    return f"{table_html(comparison_table(answer))}<p>{escape(answer.note)}</p>"


def _replicated(answer: Any) -> str:
    from truenorth.planner.show.replicated import replicated_table
    from truenorth.planner.show.table import html as table_html

    return f"{table_html(replicated_table(answer))}<p>{escape(answer.note)}</p>"


def _regret(answer: Any) -> str:
    from truenorth.planner.answers.regret import NOTE

    return f"{_rows(answer)}{_warning(answer)}<p>{NOTE}</p>"


def _warning(answer: Any) -> str:
    return "" if answer.warning is None else f"<p><strong>{escape(answer.warning)}</strong></p>"


def _servers(answer: Any) -> str:
    from truenorth.planner.show.curves import draw_svg
    from truenorth.planner.show.servers import figures, tables
    from truenorth.planner.show.servers_words import order_in_words
    from truenorth.planner.show.table import html as table_html

    found = answer.record()
    parts = [f"<p>{escape(order_in_words(found))}</p>"]
    parts += [_titled(table.title, table_html(table)) for table in tables(found)]
    parts += [_titled(figure.title, draw_svg(figure) + _legend(figure)) for figure in figures(found)]
    return "".join(parts) + ("<p>The search was interrupted.</p>" if answer.interrupted else "")


def _titled(title: str, shown: str) -> str:
    return f'<div style="max-width:720px"><p><strong>{escape(title)}</strong></p>{shown}</div>'


def _legend(figure: Any) -> str:
    """Return what names the curves of a drawing: each by its colour, and the shape of its points."""
    said = []
    for curve in figure.curves:
        mark = "\u2014" if curve.joined else curve.shape
        said.append(f'<span style="color:{curve.colour or "inherit"}">{mark}</span> {escape(curve.name)}')
    return f"<p>{' &nbsp; '.join(said)}</p>"


def _replayed(answer: Any) -> str:
    from truenorth.planner.show.replay import predicted_and_measured
    from truenorth.planner.show.table import html as table_html

    return table_html(predicted_and_measured(answer.record)) + _chart(answer)


def _workflow(answer: Workflow) -> str:
    from truenorth.planner.show.canvas import svg
    from truenorth.planner.show.pictures import draw_workflow

    return svg(draw_workflow(answer), answer.name, {})


_SHOWN: dict[tuple[str, str], Html] = {
    ("truenorth.models.scenario.build", "Scenario"): lambda answer: _facts("scenario_summary", answer),
    ("truenorth.models.workload", "Workflow"): _workflow,
    ("truenorth.planner.answers.bound", "Bound"): lambda answer: (
        _facts("bound_summary", answer) + (_regret(answer.regret) if answer.regret else "")
    ),
    ("truenorth.planner.answers.compare", "Comparison"): _compared,
    ("truenorth.planner.answers.plan", "Plan"): lambda answer: _facts("plan_summary", answer) + _chart(answer),
    ("truenorth.planner.answers.regret", "Regret"): _regret,
    ("truenorth.planner.answers.replayed", "Replayed"): _replayed,
    ("truenorth.planner.answers.replications", "Replicated"): _replicated,
    ("truenorth.planner.answers.servers.answer", "ServersAnswer"): _servers,
    ("truenorth.planner.answers.simulate", "Simulation"): lambda answer: (
        _facts("simulation_summary", answer) + _chart(answer)
    ),
    ("truenorth.planner.answers.whatif.result", "Sweep"): _table,
}
