"""Everything that the README and the pages show is run, in little time; what does not depend on time is compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from experiments.__main__ import experiments
from tests.command import app, run
from tests.documentation import reference
from tests.documentation.pages import ROOT, Step, pages, steps, with_shown
from tests.documentation.performed import perform, short
from tests.night import by_day

BY_DAY = ("README.md", "heuristic.md", "import.md")
"""Pages of which every command is run by `make test`; at night all are."""
FIRST_BY_DAY = sorted(pages(), key=lambda page: page.name not in BY_DAY)


@pytest.mark.parametrize("page", by_day(FIRST_BY_DAY, len(BY_DAY)), ids=lambda page: page.name)
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    for step, said, repeats in perform(page.read_text(), page.name, tmp_path):
        if repeats:
            assert step.contradicts(said) is None, f"{page.name}:{step.line} shows what is not in\n{said}"


PAGE = """\
Text, `truenorth plan inline` and

    truenorth plan SCENARIO -o plan.json   plan a window
    truenorth check SCENARIO plan.json # check it
    valid: every rule holds

<!-- file: a.yaml -->
```yaml
name: a
```

<!-- exits 1 -->
```console
$ truenorth simulate SCENARIO \\
    --policy "compass:adjust=off"
```

<!-- not run: needs a GPU -->
```
truenorth profile --device cuda
```

```python
x = 1
print(x)
```

```
1
```
"""


def test_commands_files_and_python_are_found_in_order() -> None:
    assert list(steps(PAGE)) == [
        Step(3, ("plan", "SCENARIO", "-o", "plan.json")),
        Step(4, ("check", "SCENARIO", "plan.json"), shown=("valid: every rule holds",)),
        Step(9, file="a.yaml", text="name: a\n"),
        Step(14, ("simulate", "SCENARIO", "--policy", "compass:adjust=off"), 1),
        Step(24, text="x = 1\nprint(x)\n", shown=("1",)),
    ]
    assert short(("schema", "--json")) == ["schema", "--json"]


def test_what_is_shown_is_compared() -> None:
    step = Step(1, shown=("jobs   2, 3 tasks", "(abridged)", "...", "took ... s", "mean 1.4"))
    assert step.contradicts("jobs 2, 3 tasks\nmore\ntook 0.5 s\n mean  1.4 \n") is None
    assert step.contradicts("took 0.5 s\njobs 2, 3 tasks\nmean 1.4\n") == "took ... s"
    assert step.contradicts("jobs 2, 3 tasks\ntook 0.5 s\nmean 1.41\n") == "mean 1.4"


def test_what_is_shown_is_renewed_line_by_line() -> None:
    step = Step(1, shown=("a   1.5", "(abridged)", "took ... s", "c   2.0"))
    assert step.renewed("a 1.5\nb 3\ntook 4 s\nc 2.0\n") == list(step.shown)
    assert step.renewed("a 1.6\nb 3\ntook 4 s\nc 2.5\n") == ["a 1.6", "(abridged)", "took 4 s", "c 2.5"]
    assert Step(1, shown=("a 1", "b 2")).renewed("a 1\nb 3\nnew 4\n") == ["a 1", "b 3", "new 4"]
    text = "See\n\n    $ truenorth check SCENARIO plan.json\n    valid: no\n\nand on.\n"
    [shown] = steps(text)
    assert with_shown(text, shown, ["valid: every rule holds"]) == text.replace("valid: no", "valid: every rule holds")


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere() -> None:
    assert {page.name for page in FIRST_BY_DAY[: len(BY_DAY)]} == set(BY_DAY)
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    written = {page.name for page in pages()[1:]}
    assert set(re.findall(r"(\w+\.md)$", navigation, re.MULTILINE)) == written | {"release_notes.md"}
    for page in pages():
        for link in re.findall(r"\]\(((?!https?:|#)[^)#\s]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_a_first_look_is_short() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= 1000
    assert len(re.findall(r"^!\[", readme, re.MULTILINE)) == 1
    assert len(pages()[1:]) <= 25
    months = "January|February|March|April|May|June|July|August|September|October|November|December"
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("  - How-to:")[0]
    for text in [readme, *((ROOT / "docs" / name).read_text() for name in re.findall(r"(\w+\.md)$", navigation, re.M))]:
        assert not re.search(rf"\b\d{{1,2}} ({months})\b", text)


def test_every_experiment_has_a_page_in_the_index_and_every_command_of_one_names_it() -> None:
    index, folder = (ROOT / "docs" / "benchmarks.md").read_text(), ROOT / "experiments"
    written = [*folder.glob("benchmarks/*.md"), *folder.glob("benchmarks/devices/*.md"), *folder.glob("checks/*.md")]
    written += [*folder.glob("studies/*/README.md"), *folder.glob("*/README.md")]
    linked = set(re.findall(r"\]\(\.\./(experiments/[\w/]+\.md)", index))
    assert {str(page.relative_to(ROOT)) for page in written} <= linked
    asked = {page: re.findall(r"python -m experiments (\w+)", page.read_text()) for page in [*pages(), *written]}
    assert {name for names in asked.values() for name in names} == set(experiments())


@pytest.mark.parametrize("page", [*pages(), *sorted((ROOT / "experiments").rglob("*.md"))], ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_command_is_shown_on_a_page() -> None:
    shown = {step.command[0] for page in pages() for step in steps(page.read_text()) if step.command}
    assert shown >= set(typer.main.get_group(app).commands) - {"schema"}  # its page redirects it into a file


def test_reference_pages_say_what_the_code_says() -> None:
    assert reference.COMMANDS.read_text() == reference.commands_page(), "make docs"
    page = reference.SCENARIO.read_text()
    assert page == reference.with_keys(page), "make docs"


def test_keys_of_scenarios_have_values_in_words() -> None:
    page = reference.scenario_keys()
    assert "| `load_bandwidth` | bandwidth, `25 Gbit/s` | required | From host memory to the GPU. |" in page
    assert "| `kv` | `reserved` or `grows`; or one per name | `reserved` |" in page
    assert page.index("### `cluster`") < page.index("### `cluster.groups[]`") < page.index("### `workload`")


@pytest.mark.parametrize("command", typer.main.get_group(app).commands.values(), ids=lambda command: str(command.name))
def test_the_example_of_a_command_is_one(command: typer.core.TyperCommand) -> None:
    _, program, name, *typed = shlex.split((command.epilog or "").partition(" > ")[0])
    assert (program, name) == ("truenorth", command.name)
    assert command.make_context(name, typed).params  # whatever could not be read would end here
    assert command.rich_help_panel


def test_help_begins_with_import_and_times_have_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["--help"]) == 0
    listed = re.findall(r"^│ (\w+) ", capsys.readouterr().out.split("From a log")[1], re.MULTILINE)
    assert listed == ["import", "fit", "estimate", "schema", "servers", "sweep", "report", "simulate", "compare",
                      "plan", "bound", "check", "verify", "profile", "replay", "trial", "progress"]  # fmt: skip
    assert run(app, ["plan", "--help"]) == 0
    assert "(default: 60 s)" in " ".join(capsys.readouterr().out.replace("│", " ").split())
