"""Everything that the README and the pages show is run, in little time; what does not depend on time is compared."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import typer.main

from tests.by_hand import TEXT
from tests.command import app, run
from tests.documentation.pages import ROOT, Step, pages, steps

TIME_LIMIT_S = "1"
MOST_REPEATS = 2
_LIMITED = {
    name
    for name, verb in typer.main.get_group(app).commands.items()
    if any("--time-limit" in parameter.opts for parameter in verb.params)
}
_BY_THE_CLOCK = _LIMITED | {"profile", "replay"}
"""Verbs whose answers depend on time."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SCENARIO").write_text(TEXT)
    (tmp_path / "SWEEP").write_text("{scenario: SCENARIO, verb: simulate, grid: {policy: [jit, hash]}}")
    (tmp_path / "LOG").write_text("release,model,runtime\n0,small,1.5\n2,large,4\n")
    (tmp_path / "HISTORY").write_text("model,runtime_s\nsmall,1.5\nlarge,4\n")
    (tmp_path / "REQUESTS").write_text("model\nlarge\n")
    (tmp_path / "JOB_LOG").write_text("step 1/200\nstep 2/200\n")
    shutil.copytree(ROOT / "experiments", "experiments", ignore=shutil.ignore_patterns("*.py", "*.png", "__pycache__"))
    namespace: dict[str, object] = {"__name__": "page"}
    chance: set[str] = set()  # files that hold what depends on time
    for step in steps(page.read_text()):
        where = f"{page.name}:{step.line}"
        if step.file:
            (tmp_path / step.file).write_text(step.text)
        elif step.command:
            assert run(app, short(step.command)) == step.exit_code, f"{where}: truenorth {' '.join(step.command)}"
            said = "".join(capsys.readouterr())
            if repeats(step.command, chance):
                assert step.contradicts(said) is None, f"{where} shows what is not in\n{said}"
        else:
            text = re.sub(r"time_limit_s=[\d.]+", f"time_limit_s={TIME_LIMIT_S}", step.text)
            exec(compile(text, where, "exec"), namespace)  # noqa: S102
            printed = capsys.readouterr().out
            assert step.contradicts(printed) is None, f"{where} shows what is not in\n{printed}"


def repeats(command: tuple[str, ...], chance: set[str]) -> bool:
    """Say whether a command answers the same at any speed, and note in `chance` whether what it writes does.

    >>> made: set[str] = set()
    >>> repeats(("plan", "a.yaml", "-o", "plan.json"), made), repeats(("check", "a.yaml", "plan.json"), made)
    (False, False)
    >>> repeats(("simulate", "a.yaml", "-o", "plan.json"), made), repeats(("check", "a.yaml", "plan.json"), made)
    (True, True)
    """
    written = {command[at + 1] for at, word in enumerate(command) if word == "-o"}
    read = [word for word in command if word not in written]
    same = command[0] not in _BY_THE_CLOCK and not any(name in word for name in chance for word in read)
    chance.difference_update(written) if same else chance.update(written)
    return same


def short(command: tuple[str, ...]) -> list[str]:
    """Return a command with few repeats and a short time limit, if its verb takes one.

    >>> short(("trial", "a.yaml", "--repeats", "5", "--time-limit", "60"))
    ['trial', 'a.yaml', '--repeats', '2', '--time-limit', '1']
    """
    words = list(command)
    for option in ("--repeats", "--rounds"):
        if option in words:
            count = words.index(option) + 1
            words[count] = str(min(int(words[count]), MOST_REPEATS))
    if words[0] not in _LIMITED:
        return words
    if "--time-limit" in words:
        at = words.index("--time-limit")
        del words[at : at + 2]
    return [*words, "--time-limit", TIME_LIMIT_S]


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


def test_every_page_is_linked_and_every_link_leads_somewhere() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    linked = set(re.findall(r"\]\((\w+\.md)\)", index))
    written = {page.name for page in pages()[1:]}
    assert written - {"index.md"} <= linked
    folder = ROOT / "experiments"
    studies = {page.parent.name for page in folder.glob("*/README.md")}
    assert set(re.findall(r"experiments/(\w+)/README\.md", index)) == studies
    for name in set(re.findall(r"python -m experiments\.(\w+)", index)):
        assert name in studies
        assert (folder / f"{name}.py").exists() or (folder / name / "__main__.py").exists()
    for page in pages()[1:]:
        assert set(re.findall(r"\]\((\w+\.md)\)", page.read_text())) <= written


def test_a_page_of_a_verb_shows_it() -> None:
    for verb in typer.main.get_group(app).commands:
        page = ROOT / "docs" / f"{verb}.md"
        if page.exists():
            assert re.search(rf"^\s*(\$ )?truenorth {verb}\b", page.read_text(), re.MULTILINE), page.name
