"""From a sweep file to its cells, and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planner.answers.whatif.small import SWEEP, written
from truenorth.models.scenario import InputError
from truenorth.models.scenario.changes import value_at
from truenorth.planner.answers.ask import budget_of
from truenorth.planner.answers.whatif.grid import Grid, read_grid, read_sweep
from truenorth.planner.answers.whatif.verbs import policy_names


def grid_of(folder: Path, sweep: str = SWEEP) -> Grid:
    return read_grid(*read_sweep(written(folder, sweep)))


def with_grid(*lines: str, head: str = "settings: {policy: compass}") -> str:
    return "\n".join(["scenario: scenario.yaml", head, "grid:", *(f"  {line}" for line in lines)]) + "\n"


def values(grid: Grid, *where: str) -> list[object]:
    return [value_at(cell.call.data, where) for cell in grid.cells]


def test_the_last_axis_moves_fastest(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    assert len(grid.cells) == 6
    assert values(grid, "cluster", "servers") == ["1", "2", "3"] * 2
    assert values(grid, "workload", "poisson", "rate") == ["100000 /s"] * 3 + ["200000 /s"] * 3
    assert [cell.at for cell in grid.cells] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_factors_stars_and_dotted_names(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, with_grid("models.*.weights: [x0.5, 1 B]"))
    assert values(grid, "models", "m", "weights") == ["2 B", "1 B"]
    assert values(grid, "models", "n.1", "weights") == ["4 B", "1 B"]


def test_what_the_file_leaves_out_can_be_set(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, with_grid("options.overlap_loads: [true, false]"))
    assert values(grid, "options", "overlap_loads") == ["true", "false"]


def test_settings_and_options_of_the_policy_are_axes_too(tmp_path: Path) -> None:
    grid = grid_of(
        tmp_path, with_grid("policy: [compass, 'compass:prefetch=0']", "policy.lookahead: [1, 5]", "seed: [7]")
    )
    assert [policy_names(cell.call.question)[0] for cell in grid.cells] == [
        "compass:lookahead=1",
        "compass:lookahead=5",
        "compass:prefetch=0,lookahead=1",
        "compass:prefetch=0,lookahead=5",
    ]
    assert {budget_of(cell.call.question).seed for cell in grid.cells} == {7}


def test_cases_change_several_things_together(tmp_path: Path) -> None:
    grid = grid_of(
        tmp_path,
        with_grid("case:", "  as it is:", "  small: {cluster.servers: 1, policy: jit}"),
    )
    assert values(grid, "cluster", "servers") == ["2", "1"]
    assert [policy_names(cell.call.question)[0] for cell in grid.cells] == ["compass", "jit"]


def test_cells_that_ask_the_same_have_the_same_key_and_others_do_not(tmp_path: Path) -> None:
    cells = grid_of(tmp_path, with_grid("cluster.servers: [2, x1, 3]")).cells
    keys = [cell.call.key() for cell in cells]
    assert keys[0] == keys[1] != keys[2]


def test_the_key_covers_the_content_of_a_trace(tmp_path: Path) -> None:
    written(tmp_path)
    scenario = tmp_path / "scenario.yaml"
    text = scenario.read_text()
    scenario.write_text(text[: text.index("  poisson")] + "  trace: {file: trace.csv}\n")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(with_grid("cluster.servers: [2]"))
    keys = []
    for time in (1, 2):
        (tmp_path / "trace.csv").write_text(f"time_us,workflow\n{time},w\n")
        keys.append(read_grid(*read_sweep(sweep)).cells[0].call.key())
    assert keys[0] != keys[1]


MANY = ", ".join(str(number) for number in range(1, 400))
GPU = "{kind: A, memory: 8 B, load_bandwidth: 1 B/s}"


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (["cluster.serverz: [1]"], 4, "grid.cluster.serverz[0]: cluster.serverz: unknown key, did you mean 'servers'?"),
        (["clusterr.servers: [1]"], 4, "is no path and no setting of the verb; did you mean 'cluster'?"),
        (["cluster.servers: [1, 0]"], 4, "grid.cluster.servers[1]: cluster.servers: '0' is no such number; allowed"),
        (["cluster.servers: 5"], 4, "grid.cluster.servers: is no axis; allowed is a list of values"),
        (["cluster.servers: []"], 4, "grid.cluster.servers: is no axis"),
        (["cluster.servers.count: [1]"], 4, "cluster.servers is the value '2'; allowed is a path that ends there"),
        (["models.o.weights: [1 B]"], 4, "grid.models.o.weights[0]: 'o' is not in the scenario; allowed are m, n.1"),
        (["models.mm.weights: [1 B]"], 4, "did you mean 'm'?"),
        (["workload.poisson.mix.w: [1]"], 4, "'w' is not in the scenario; allowed is to change what it would be part"),
        (["cluster.servers: [x0.3]"], 4, "'0.6' is no such number"),
        (["name: [x2]"], 4, "'small' stands there in the scenario; allowed is to scale a number"),
        (["seed: [1]", "policy: [jit, jjt]"], 5, "grid.policy[1]: unknown policy 'jjt' (did you mean jit?)"),
        (["policy.lookahed: [1]"], 4, "grid.policy.lookahed[0]: policy compass: unknown option 'lookahed'"),
        (["policy: [plan.json]"], 4, "'plan.json' is the plan of one scenario; allowed are online policies"),
        (["noise: [loud]"], 4, "grid.noise[0]: 'loud' is no noise"),
        (["warmup: [2]"], 4, "grid.warmup[0]: '2' is no share; allowed is a number of at least 0"),
        (["seed: [4294967296]"], 4, "grid.seed[0]: '4294967296' is no such number; allowed is a whole number"),
        (["case: {one: [1]}"], 4, "grid.case.one: is no case; allowed is a mapping"),
        (["case: {one: {cluster.server: 1}}"], 4, "grid.case.one.cluster.server: cluster.server: unknown key"),
        (["cluster.gpu.memory: [9 B]", f"case: {{one: {{cluster.gpu: {GPU}}}}}"], 5,
         "grid.case: changes cluster.gpu.memory, as axis 'cluster.gpu.memory' does"),
        ([f"seed: [{MANY}]", f"cluster.servers: [{MANY}]"], 3, "grid: gives 159201 cells; allowed are 100000"),
    ],
)  # fmt: skip
def test_an_error_in_the_grid_names_line_field_and_remedy(
    tmp_path: Path, lines: list[str], line: int, message: str
) -> None:
    assert message in refused(tmp_path, with_grid(*lines), line)


@pytest.mark.parametrize(
    ("sweep", "line", "message"),
    [
        (with_grid("seed: [1]", head="settings: {policy: compas}"), 2, "settings.policy: unknown policy 'compas' (did"),
        (with_grid("seed: [1]", head="settings: {polcy: jit}"), 2, "settings.polcy: unknown key, did you mean 'polic"),
        (with_grid("seed: [1]", head="settings: {}"), 2, "settings: key 'policy' is missing"),
        (with_grid("seed: [1]", head="verb: simulat"), 2, "verb: unknown verb 'simulat'; did you mean 'simulate'?"),
        (with_grid("method: [best]", head="verb: plan"), 4, "grid.method[0]: 'best' is unknown; allowed are auto,"),
        (with_grid("policies: [[jit, jjt]]", head="verb: compare"), 4, "grid.policies[0]: unknown policy 'jjt'"),
        (
            with_grid("time_limit: [0]", head="verb: bound"),
            4,
            "grid.time_limit[0]: '0' is no time limit; write",
        ),
        ("scenario: scenario.yaml\ngird: {}\n", 2, "gird: unknown key, did you mean 'grid'?"),
        ("scenario: [1]\ngrid: {seed: [1]}\n", 1, "scenario: is neither; allowed is the path of a scenario file"),
        ("scenario: {cluster: 1}\ngrid: {seed: [1]}\n", 1, "key 'workflows' is missing"),
    ],
)
def test_an_error_beside_the_grid_names_line_field_and_remedy(
    tmp_path: Path, sweep: str, line: int, message: str
) -> None:
    assert message in refused(tmp_path, sweep, line)


def refused(folder: Path, sweep: str, line: int) -> str:
    """Return the message with which a sweep is refused on this line of its file."""
    with pytest.raises(InputError) as caught:
        grid_of(folder, sweep)
    assert str(caught.value).startswith(f"{folder}/sweep.yaml:{line}: ")
    return str(caught.value)


def test_an_error_in_the_scenario_is_blamed_on_its_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("servers: 2", "servers: two"))
    with pytest.raises(InputError, match=r"scenario\.yaml:3: cluster\.servers"):
        read_sweep(path)
