"""What is said of a size, and when: the deployable answer first, prices of mixes, nothing of what was not looked at."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import rows, scenario
from truenorth.models import ServiceLevels
from truenorth.models.record import encode
from truenorth.models.scenario import load_scenario
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.forces import demand_in_words
from truenorth.planner.answers.servers.goal import tolerances
from truenorth.planner.answers.servers.hunt import floor_of
from truenorth.planner.show.curves import draw
from truenorth.planner.show.servers_words import answer_in_words, order_in_words, recommendation

TEXT = """\
name: dear
cluster:
  groups:
  - {count: 3, gpu: {kind: L4, memory: 24 GB, load_bandwidth: 12 GB/s}, price_per_hour: 0.8}
  - {count: 1, gpus_per_server: 2, gpu: {kind: H100, memory: 80 GB, load_bandwidth: 25 GB/s}, price_per_hour: 6.5}
  network: {bandwidth: 12 GB/s}
workflows:
  w: {tasks: {a: {runtime: {L4: 400 ms, H100: 200 ms}}}}
workload:
  jobs:
  - {release: 0 s, workflow: w}
  - {release: 0 s, workflow: w}
slo: p100 latency <= 500 ms
"""
"""Two tasks at once: two L4 at 1.6 per hour, one each, or the two H100 of one server."""


def _ask(folder: Path, stop_at: str, text: str = TEXT, policy: str = "jit") -> ServersAnswer:
    """Ask until the work turns to something, when time is up."""
    path = folder / "dear.yaml"
    path.write_text(text)
    stop = threading.Event()

    def tell(words: str) -> None:
        if words == stop_at:
            stop.set()

    return tn.servers(load_scenario(path), policies=[policy], time_limit=600, stop=stop, watch=tell)


def test_what_can_be_deployed_comes_before_every_bound(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "bounds")
    assert (answer.mix, answer.proved) == ((3, 1), False)
    assert [(row.policy, row.mix) for row in answer.policies] == [("jit", (3, 1))]
    # Of the 4 x 2 - 1 mixes the six cheaper ones were left out.
    assert answer.policies[0].skipped == 6


def test_prices_are_bounded_and_mixes_named(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "bounds")
    assert rows(answer) == [
        (
            "plan (offline optimum)",
            "clairvoyant",
            "3 L4 + 1 2xH100 at 8.9 per hour",
            "a plan; no smaller size is refuted",
        ),
        ("jit", "queue lengths", "3 L4 + 1 2xH100 at 8.9 per hour", "simulated; no time for 6 sizes below"),
    ]
    tn.save(answer, tmp_path / "out")
    made = tn.report([tmp_path / "out"])
    (section,) = made.sections
    assert section.question == "dear: which servers are enough for p100 latency <= 500 ms?"
    # 8.9 per hour is 6,497 in a month of 730 hours.
    assert section.answer == (
        "Recommended: at most 3 L4 + 1 2xH100 at 8.90 per hour, 6,500 per month; 6 cheaper mixes untried. "
        "Policy: jit (information used: queue lengths)."
    )
    assert section.remarks == [
        "jit (information used: queue lengths) needs at most 3 L4 + 1 2xH100 at 8.9 per hour "
        "(6 cheaper mixes were not tried for lack of time).",
        "With the future known, 3 L4 + 1 2xH100 at 8.9 per hour are enough; whether less is enough is open.",
    ]
    assert (
        "Not settled within the time limit: 6 sizes of jit; more traffic; one failure; "
        "whether a plan would do with 6 cheaper sizes."
    ) in section.notes
    assert section.tables[0].cells() == [
        ["fleet", "3 L4 + 1 2xH100"],
        ["policy", "jit"],
        ["price", "8.90 per hour, 6,500 per month, in the price units of the scenario"],
        ["traffic", "not simulated"],
        ["redundancy", "not simulated"],
        ["lower bound", "none"],
    ]
    assert [column.heading for column in section.tables[1].columns] == [
        "",
        "information used",
        "cheapest mix",
        "evidence",
    ]
    (figure,) = section.figures
    assert figure.x_label == "price per hour"
    # Mixes of one price are no series: each is a dot, and so says the legend.
    assert [curve.joined for curve in figure.curves] == [True, False, False]
    assert made.html.count('class="shape"') == 2
    assert figure.curves[2].words[0].endswith("with 3 L4 + 1 2xH100 at 8.9 per hour")


def test_a_price_below_the_answer_is_said_to_be_open(tmp_path: Path) -> None:
    # One L4 is refuted, as two tasks of 400 ms do not fit in 500 ms; two are not, and time was up before a plan.
    answer = _ask(tmp_path, "jit on 1 servers")
    assert answer.lower_bound is None
    assert answer.mix == (3, 1)
    assert "below 1.6 per hour no mix is, which is proved" in answer_in_words(answer.record())


def test_sizes_below_one_that_met_are_simulated_by_halves(tmp_path: Path) -> None:
    # By price, without the one L4 that is refuted: 2 L4, 3 L4, 1 H100, 1 of each, 2 + 1, and 3 + 1, the scenario's own.
    # All serve two tasks at once; the middle of the five below is one server, that of the two below it three. At last
    # one of the two is gone.
    path, words = tmp_path / "dear.yaml", list[str]()
    path.write_text(TEXT)
    answer = tn.servers(load_scenario(path), policies=["jit"], time_limit=600, watch=words.append)
    assert [said for said in words if said.startswith("jit on")] == [f"jit on {n} servers" for n in (4, 1, 3, 2, 1)]
    assert (answer.policies[0].mix, answer.policies[0].skipped) == ((2, 0), 0)


def test_what_to_order_comes_first_with_its_floor_and_how_much_more_traffic_it_takes(tmp_path: Path) -> None:
    # Six jobs of 400 ms on L4, one every 300 ms, within 500 ms: on one the third waits for 200 ms. On two, each waits
    # for 400 ms less two gaps more than the last but one: the last two for 89 ms at 1.6875 times the traffic (a gap of
    # 178 ms), for 160 ms, which is too long, at 1.875 times.
    jobs = "".join(f"  - {{release: {300 * job} ms, workflow: w}}\n" for job in range(6))
    text = TEXT[: TEXT.index("  jobs:")] + "  jobs:\n" + jobs + "slo: p100 latency <= 500 ms\n"
    answer = _ask(tmp_path, "never", text)
    assert [(each.policy, each.mix) for each in answer.alternatives] == [("jit", (2, 0))]
    growth = answer.growth
    assert growth is not None
    assert (growth.size.mix, growth.holds, growth.fails) == ([2, 0], 27 / 16, 15 / 8)
    assert answer_in_words(answer.record()).startswith(
        "jit (information used: queue lengths) needs 2 L4 at 1.6 per hour; "
        "no schedule meets the target below 1.6 per hour (proved). "
        "Traffic: this size handles 68 % more, not 88 %. "
    )
    assert order_in_words(answer.record()) == (
        "Recommended: 2 L4 at 1.60 per hour, 1,170 per month; 68 % headroom; survives one failure: no; "
        "lower bound 1.60. Policy: jit (information used: queue lengths)."
    )
    assert recommendation(answer.record())[2:] == [
        ("price", "1.60 per hour, 1,170 per month, in the price units of the scenario"),
        ("traffic", "handles 68 % more, not 88 %"),
        ("redundancy", "N+0: one failure breaks the target; --spare 1 sizes for N+1"),
        ("lower bound", "1.60 per hour (proved)"),
    ]


@pytest.mark.parametrize(
    ("level", "within", "late"),
    [
        ("p100 latency <= 500 ms", "jobs within 500 ms need", "are not within 500 ms"),
        ("p100 slowdown <= 1.5", "jobs within a slowdown of 1.5 need", "are not within a slowdown of 1.5"),
        ("mean latency <= 140 ms", "jobs within 280 ms (2 times the mean allowed) need", "are not within 280 ms"),
        ("no late jobs", "jobs on time need", "are late"),
    ],
)
def test_what_forces_a_size_is_said_in_the_words_of_the_level(level: str, within: str, late: str) -> None:
    # Four tasks of 200 ms at once: one GPU runs two of them within 500 ms, one within 300 ms or 280 ms.
    built = scenario({"w": {"runtime": "200 ms"}}, [(0, "w", 500)] * 4)
    floor = floor_of(built.instance, tolerances(ServiceLevels.parse(level)), 60.0)
    assert floor.demand is not None
    said = demand_in_words(floor.models, 1, floor.demand, 2, floor.tolerance.within)
    assert within in said
    assert said.endswith(f"at least 2 jobs {late}")


def test_a_bound_that_may_take_longer_than_the_limit_is_not_begun(tmp_path: Path) -> None:
    # Two tasks of 400 ms due at 399 ms need two GPUs and more; the fluid bound of two jobs may take 0.8 ms.
    path = tmp_path / "dear.yaml"
    path.write_text(TEXT)
    asked = tolerances(ServiceLevels.parse("p100 latency <= 399 ms"))
    window = load_scenario(path).instance
    assert [floor_of(window, asked, limit_s).gpus for limit_s in (600.0, 5e-4)] == [2, 1]


def test_nothing_is_said_of_what_was_not_looked_at(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "fluid bound")
    assert rows(answer) == [
        ("plan (offline optimum)", "clairvoyant", "-", "no plan found"),
        ("jit", "queue lengths", "-", "not simulated: no time left"),
    ]
    words = answer_in_words(answer.record())
    assert words == "No plan within p100 latency <= 500 ms was found on up to 3 L4 + 1 2xH100 at 8.9 per hour."


def test_no_number_of_servers(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "never", TEXT.replace("<= 500 ms", "<= 199 ms"))
    assert answer_in_words(answer.record()) == (
        "No number of servers meets p100 latency <= 199 ms, which is proved. "
        "Loads and run times alone: even with every GPU idle, 2 of 2 jobs (100 %, all of w) take too long; no plan "
        "brings p100 latency below 0.2 s."
    )
    told = {"slo": "p100 latency <= 199 ms", "jobs": 2, "too_long": 2, "workflow": "w", "workflows": 1}
    assert encode(answer.record())["refutation"]["too_long_alone"] == told | {"best_value": 0.2}
    assert rows(answer)[0][2:] == ("-", "refuted, however many servers there are")
    tn.save(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    assert section.answer == answer_in_words(answer.record())


def test_who_takes_too_long_alone_and_what_can_be_reached() -> None:
    # Alone, two of five jobs of v take 900 ms and two of w 300 ms; the fifth, of x, 500 ms. Of five the third is p60.
    flows = {name: {"runtime": f"{ms} ms"} for name, ms in (("v", 900), ("w", 300), ("x", 500))}
    window = scenario(flows, [(0, name, 400) for name in "vvwwx"])
    told = {}
    for text in ("p60 latency <= 400 ms", "80 % within deadline", "mean slowdown <= 0.5", "p100 latency of v <= 1 ms"):
        answer = tn.servers(window, ServiceLevels.parse(text), policies=(), time_limit=20)
        assert answer.impossible
        told[text] = str(encode(answer.record())["refutation"]["forces"]).partition("idle, ")[2]
    assert list(told.values()) == [
        "3 of 5 jobs (60 %, of 2 workflows, most of v) take too long; no plan brings p60 latency below 0.5 s",
        "3 of 5 jobs (60 %, of 2 workflows, most of v) take too long; at best 40 % of the jobs end within their "
        "deadlines",
        "5 of 5 jobs (100 %, of 3 workflows, most of v) take too long; no plan brings mean slowdown below 1",
        "2 of 2 jobs (100 %, all of v) take too long; no plan brings p100 latency of v below 0.9 s",
    ]
    # What can be reached is enough: the bound is the least limit that some number of servers meets.
    assert tn.servers(window, ServiceLevels.parse("p60 latency <= 500 ms"), policies=(), time_limit=20).proved


@pytest.mark.parametrize("share", [0.05, 0.0])
def test_policies_that_plan_come_last_and_all_near_their_least_before_any_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    # Own size, 4, then in the order of prices 1, 3 and 2 servers, see above. A bound that may take more than a share
    # of the time waits for what can be deployed.
    monkeypatch.setattr("truenorth.planner.answers.servers.answer._QUICK_SHARE", share)
    path, words = tmp_path / "dear.yaml", list[str]()
    path.write_text(TEXT)
    tn.servers(load_scenario(path), policies=["receding:moves=1", "jit", "srpt"], time_limit=600, watch=words.append)
    ran = [said for said in words if " on " in said or said == "fluid bound"]
    own, floor = ["jit on 4 servers", "srpt on 4 servers"], ["fluid bound"]
    assert ran[:3] == (floor + own if share else own + floor)
    assert ran[3:9] == [f"{policy} on {n} servers" for policy in ("jit", "srpt") for n in (1, 3, 2)]
    *planned, failure = ran[9:]
    assert {said.split(" on ")[0] for said in planned} == {"receding:moves=1"}
    assert failure == "jit on 1 servers"


def test_servers_stand_at_whole_numbers(tmp_path: Path) -> None:
    groups = TEXT[TEXT.index("  groups") : TEXT.index("  network")]
    one = "  servers: 4\n  gpu: {kind: L4, memory: 24 GB, load_bandwidth: 12 GB/s}\n"
    answer = _ask(tmp_path, "never", TEXT.replace(groups, one), "srpt")
    assert (answer.servers, answer.proved) == (2, True)
    tn.save(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    axes = draw(section.figures[0]).axes[0]
    assert all(tick == int(tick) for tick in axes.get_xticks())
