"""Tiny instances with optima derived by hand: one for each rule and objective, on both sides of the fence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tests.instances import MB, chain, cluster, gpu, instance, network, task
from truenorth.models import Cluster, Edge, InitialResidency, Instance, Job, Link, Objective, Restrictions


@dataclass(frozen=True)
class Case:
    """An instance, what is minimised, and the optimum; None: infeasible."""

    name: str
    objective: Objective
    instance: Instance
    optimum: Fraction | None


def jobs(*workflows: object, release: int = 0) -> list[Job]:
    return [Job(workflow, release) for workflow in workflows]  # type: ignore[arg-type]


def one(runtime: int, *models: str, name: str = "w") -> object:
    return chain(task("a", runtime, models), name=name)


def with_tool(delay_us: int, kinds: tuple[str, str] = ("*", "*")) -> object:
    """Return a, 3 us, and b, 4 us, between which a tool runs; each on a kind of GPU, the output of a being 2 bytes."""
    after = replace(task("b", {kinds[1]: 4}), inputs=(Edge("a", 2, delay_us=delay_us),))
    return chain(task("a", {kinds[0]: 3}), after)


def named(input_bytes: int) -> list[Job]:
    """Return two jobs of 4 us that bring bytes along to s0."""
    return [Job(chain(task("a", 4, input_bytes=input_bytes)), 0, ingress=0) for _ in range(2)]


def case(name: str, optimum: int | str | None, built: Instance, objective: Objective = Objective.MAKESPAN) -> Case:
    return Case(name, objective, built, None if optimum is None else Fraction(optimum))


TWO_SERVERS = cluster(2)
UNLIKE = Cluster((gpu(0), gpu(1, kind="B")), network())
ROOMY = cluster(1, memory_bytes=20)

RULES = (
    # One GPU, one byte per microsecond: load 4, run 3.
    case("R1 load then run", 7, instance(jobs(one(3, "m")), {"m": 4})),
    # Overhead 2 makes the load 6.
    case("R1 overhead", 9, instance(jobs(one(3, "m")), {"m": 4}, cluster(1, load_overhead_us=2))),
    # Released at 10: the load has long been done.
    case("R1 prefetch before release", 13, instance(jobs(one(3, "m"), release=10), {"m": 4})),
    # Loads 4 and 5 share the copy engine: ready at 4 and 9; runs 1 and 1: end 10. The other order ends at 9 + 1, too.
    case("R1 one load at a time", 10, instance(jobs(one(1, "m"), one(1, "n", name="v")), {"m": 4, "n": 5})),
    # Memory 10 holds 5 + 5: loads end at 5 and 10, runs [5, 8), [10, 13).
    case("R2 both fit", 13, instance(jobs(one(3, "m"), one(3, "n", name="v")), {"m": 5, "n": 5})),
    # 5 + 6 exceeds 10: the second load waits for the first run: load 5, run 3, load 6, run 3.
    case("R2 one at a time", 17, instance(jobs(one(3, "m"), one(3, "n", name="v")), {"m": 5, "n": 6})),
    # A second use costs no second load: 4 + 3 + 3.
    case("R3 hit", 10, instance(jobs(one(3, "m"), one(3, "m", name="v")), {"m": 4})),
    # Both models of a task must be there: 4 + 5 + 3.
    case("R3 two models", 12, instance(jobs(one(3, "m", "n")), {"m": 4, "n": 5})),
    # Overlap: m ready 4, runs [4, 9) while n loads [4, 9), then n runs 1.
    case("R5 overlap", 10, instance(jobs(one(5, "m"), one(1, "n", name="v")), {"m": 4, "n": 5})),
    # No overlap: everything in a row, 4 + 5 + 5 + 1.
    case(
        "R5 no overlap", 15, instance(jobs(one(5, "m"), one(1, "n", name="v")), {"m": 4, "n": 5}, overlap_loads=False)
    ),
    # Ready at 0: no load.
    case("R6 initial", 3, instance(jobs(one(3, "m")), {"m": 4}, initial=(InitialResidency(0, 0),))),
    # n may be evicted at 0, as it serves nothing: load 6, run 3.
    case("R6 evict initial", 9, instance(jobs(one(3, "m")), {"m": 6, "n": 5}, initial=(InitialResidency(0, 1),))),
    # n serves first (run 2), then leaves: load m [2, 8), run 3.
    case(
        "R6 use, then evict",
        11,
        instance(jobs(one(3, "m"), one(2, "n", name="v")), {"m": 6, "n": 5}, initial=(InitialResidency(0, 1),)),
    ),
    # Kinds A 9 us and B 4 us; the faster one is chosen.
    case(
        "T1 kinds",
        4,
        instance(jobs(chain(task("a", {"A": 9, "B": 4}))), on=Cluster((gpu(0), gpu(1, kind="B")), network())),
    ),
    # Load 4 and run 3 on B; nothing runs on A, where it could not begin before 54.
    case(
        "T1 a GPU that runs nothing",
        7,
        instance(
            jobs(chain(task("a", {"A": 9, "B": 3}, ["m"]))),
            {"m": 4},
            Cluster((gpu(0, load_overhead_us=50), gpu(1, kind="B")), network()),
        ),
    ),
    # Only A is eligible.
    case("T1 eligible", 9, instance(jobs(chain(task("a", {"A": 9, "B": 4}))))),
    # Tasks 3 and 4 in a row on one GPU.
    case("T2 same GPU", 7, instance(jobs(chain(task("a", 3), task("b", 4, after={"a": 5}))))),
    # b and c (4 each) follow a (3). Together on one GPU: 11. One elsewhere: 3 + transfer (1 + 2) + 4 = 10.
    case(
        "T2 transfer pays",
        10,
        instance(jobs(chain(task("a", 3), task("b", 4, after={"a": 2}), task("c", 4, after={"a": 2}))), on=TWO_SERVERS),
    ),
    # With 5 bytes it does not: 3 + (1 + 5) + 4 = 13 > 11.
    case(
        "T2 transfer does not pay",
        11,
        instance(jobs(chain(task("a", 3), task("b", 4, after={"a": 5}), task("c", 4, after={"a": 5}))), on=TWO_SERVERS),
    ),
    # Staged, 1 byte: 1 + (1 + 1 + 1) = 4 > 3 saved by parallel work: 3 + 4 + 4 = 11, elsewhere 3 + 4 + 4 = 11.
    case(
        "T2 staged",
        11,
        instance(
            jobs(chain(task("a", 3), task("b", 4, after={"a": 1}), task("c", 4, after={"a": 1}))),
            on=cluster(2, network(staged=True)),
        ),
    ),
    # Within a server the link is free: 3 + 0 + 4.
    case(
        "T2 within a server",
        7,
        instance(
            jobs(chain(task("a", 3), task("b", 4, after={"a": 5}), task("c", 4, after={"a": 5}))),
            on=Cluster((gpu(0, 0), gpu(1, 0)), network(within=Link())),
        ),
    ),
    # Both jobs name s0. Elsewhere the second runs 4 from 1 + 2 on: 7; with 5 bytes from 6 on, so both stay: 8.
    case("T2 input pays", 7, instance(named(2), on=TWO_SERVERS)),
    case("T2 input does not pay", 8, instance(named(5), on=TWO_SERVERS)),
    # A drawn ingress costs nothing.
    case("T2 input of a drawn ingress", 4, instance(jobs(*(j.workflow for j in named(5))), on=TWO_SERVERS)),
    # A tool of 5 us runs between a and b, also on the same GPU: 3 + 5 + 4.
    case("E5 delay", 12, instance(jobs(with_tool(5)))),
    # The GPU does not wait meanwhile: a [0, 3), the other [3, 8), b [8, 12).
    case("E5 another runs meanwhile", 12, instance(jobs(with_tool(5), one(5, name="v")))),
    # a runs on A alone and b on B: delay and transfer (1 + 2) add up: 3 + 5 + 3 + 4.
    case("E5 delay and transfer", 15, instance(jobs(with_tool(5, ("A", "B"))), on=UNLIKE)),
    # The job's own delay stands in place of the workflow's: 3 + 1 + 4.
    case("E5 own delay", 8, instance([Job(with_tool(5), 0, delays_us={"b": 1})])),  # type: ignore[arg-type]
    # P_j is 3 + 5 + 4 = 12 and 6. The other first: 1 and (6 + 12) / 12; between a and b: 9 / 6 and 13 / 12, more.
    case("E5 slowdown", "5/4", instance(jobs(with_tool(5), one(6, name="v"))), Objective.MEAN_SLOWDOWN),
    # Two tasks of 5 on one GPU, on two.
    case("T3 one GPU", 10, instance(jobs(one(5), one(5, name="v")))),
    case("T3 two GPUs", 5, instance(jobs(one(5), one(5, name="v")), on=TWO_SERVERS)),
)

SLOTS = (
    # Slots 6 and 4: m (5) and n (4) both fit: loads 5 + 4, then n runs 1; m runs [5, 8).
    case(
        "R2 slots hold both",
        10,
        instance(jobs(one(3, "m"), one(1, "n", name="v")), {"m": 5, "n": 4}, cluster(1, slots=(6, 4), memory_bytes=10)),
    ),
    # Slots 6 and 4: m and n (5 each) both need slot 0, though 10 bytes would do: 5 + 3 + 5 + 3.
    case(
        "R2 slot too small",
        16,
        instance(jobs(one(3, "m"), one(3, "n", name="v")), {"m": 5, "n": 5}, cluster(1, slots=(6, 4), memory_bytes=10)),
    ),
    # Equal slots of 5: both fit: loads [0, 5), [5, 10), last run [10, 13).
    case(
        "R2 equal slots",
        13,
        instance(jobs(one(3, "m"), one(3, "n", name="v")), {"m": 5, "n": 5}, cluster(1, slots=(5, 5), memory_bytes=10)),
    ),
    # m (2) is where alone n (5) fits: it moves by a load [0, 2), n loads [2, 7), both run [7, 9). If m runs where it is
    # first, n loads from 4 on and m once more until 11.
    case(
        "R2 a model in the way of another",
        9,
        instance(
            [Job(chain(task("a", 4, ["m"]), task("b", 2, ["m", "n"], {"a": 1})), 0)],
            {"m": 2, "n": 5},
            cluster(1, slots=(6, 2), memory_bytes=8),
            initial=(InitialResidency(0, 0, 0),),
        ),
    ),
    # A task needs m (2) and n (4); slots 4 and 4 and initially m in slot 1: n loads into slot 0: 4 + 1.
    case(
        "R6 initial slot",
        5,
        instance(
            jobs(one(1, "m", "n")),
            {"m": 2, "n": 4},
            cluster(1, slots=(4, 4), memory_bytes=8),
            initial=(InitialResidency(0, 0, 1),),
        ),
    ),
    # m (2) sits in the only slot that n (4) fits; the other slot has 2. So m is evicted at 0 and loaded again
    # after n: load n [0, 4), load m [4, 6), run [6, 7).
    case(
        "R6 initial slot in the way",
        7,
        instance(
            jobs(one(1, "m", "n")),
            {"m": 2, "n": 4},
            cluster(1, slots=(4, 2), memory_bytes=6),
            initial=(InitialResidency(0, 0, 0),),
        ),
    ),
)

_PAIR = jobs(one(3, "m"), one(3, "n", name="v"))
_SAME = jobs(one(5, "m"), one(5, "m", name="v"))

RESTRICTED = (
    # 5 + 6 exceed 10 and no swap is allowed: no plan on one GPU.
    case(
        "X no swaps",
        None,
        instance(_PAIR, {"m": 5, "n": 6}, restrictions=Restrictions(no_swaps=True)),
    ),
    # On two GPUs each keeps one: 6 + 3.
    case(
        "X no swaps, two GPUs",
        9,
        instance(_PAIR, {"m": 5, "n": 6}, TWO_SERVERS, restrictions=Restrictions(no_swaps=True)),
    ),
    # An unused initial residency may be left out even without swaps: load 6, run 3.
    case(
        "X no swaps, initial left out",
        9,
        instance(
            jobs(one(3, "m")),
            {"m": 6, "n": 5},
            initial=(InitialResidency(0, 1),),
            restrictions=Restrictions(no_swaps=True),
        ),
    ),
    # Two replicas: both run [4, 9). One replica: the second load starts when the first run ends, or both run on
    # one GPU: 4 + 5 + 5.
    case("X two replicas", 9, instance(_SAME, {"m": 4}, TWO_SERVERS, restrictions=Restrictions({}, {}, {"m": 2}))),
    case("X one replica", 14, instance(_SAME, {"m": 4}, TWO_SERVERS, restrictions=Restrictions({}, {}, {"m": 1}))),
    # One slot of memory each; m may be held once, and each GPU is of a kind that only one of the tasks can use:
    # load 4, run 5, load 4 elsewhere, run 5.
    case(
        "X replica moves",
        18,
        instance(
            jobs(chain(task("a", {"A": 5}, ("m",))), chain(task("a", {"B": 5}, ("m",)), name="v")),
            {"m": 4},
            Cluster((gpu(0), gpu(1, kind="B")), network()),
            restrictions=Restrictions({}, {}, {"m": 1}),
        ),
    ),
    # m may be on GPU 1 only, which loads half as fast: 8 + 3.
    case(
        "X model pinned",
        11,
        instance(
            jobs(one(3, "m")),
            {"m": 4},
            Cluster((gpu(0), gpu(1, load_bandwidth=Fraction(MB, 2))), network()),
            restrictions=Restrictions({"m": frozenset({1})}),
        ),
    ),
    # Both workflows on GPU 0 only: 5 + 5.
    case(
        "X workflow pinned",
        10,
        instance(
            jobs(one(5), one(5, name="v")),
            on=TWO_SERVERS,
            restrictions=Restrictions({}, {"w": frozenset({0}), "v": frozenset({0})}),
        ),
    ),
)


def _short_and_long(**fields: object) -> Instance:
    """Runs of 2 and 6 on one GPU, both released at 0."""
    short, long = chain(task("a", 2), name="short"), chain(task("a", 6), name="long")
    extra = {"short": fields.get("short", {}), "long": fields.get("long", {})}
    return instance([Job(short, 0, **extra["short"]), Job(long, 0, **extra["long"])])  # type: ignore[arg-type]


OBJECTIVES = (
    # Short first: completions 2 and 8; long first: 8 and 6.
    case("mean latency", 5, _short_and_long(), Objective.MEAN_LATENCY),
    # (2 / 2 + 8 / 6) / 2 = 7 / 6.
    case("mean slowdown", "7/6", _short_and_long(), Objective.MEAN_SLOWDOWN),
    # Weights 1 and 4. Short first (2 + 32) / 5 = 34 / 5; long first (8 + 24) / 5 = 32 / 5.
    case("weighted latency", "32/5", _short_and_long(long={"weight": Fraction(4)}), Objective.WEIGHTED_LATENCY),
    # Without weight nothing counts.
    case(
        "weightless latency",
        0,
        _short_and_long(short={"weight": Fraction(0)}, long={"weight": Fraction(0)}),
        Objective.WEIGHTED_LATENCY,
    ),
    case("makespan", 8, _short_and_long(), Objective.MAKESPAN),
    # Deadlines 1 and 6: short first is late by 1 and 2; long first by 7 and 0.
    case(
        "tardiness",
        3,
        _short_and_long(short={"deadline_us": 1}, long={"deadline_us": 6}),
        Objective.WEIGHTED_TARDINESS,
    ),
    # With weight 8 on the long one: 1 + 16 against 7.
    case(
        "weighted tardiness",
        7,
        _short_and_long(short={"deadline_us": 1}, long={"deadline_us": 6, "weight": Fraction(8)}),
        Objective.WEIGHTED_TARDINESS,
    ),
    # Deadlines 2 and 6: one is late either way; at 2 and 8 none is.
    case("late jobs", 1, _short_and_long(short={"deadline_us": 2}, long={"deadline_us": 6}), Objective.LATE_JOBS),
    case("no late jobs", 0, _short_and_long(short={"deadline_us": 2}, long={"deadline_us": 8}), Objective.LATE_JOBS),
    # The same with weight 5 on the short one: the long one is late.
    case(
        "weighted late jobs",
        1,
        _short_and_long(short={"deadline_us": 2, "weight": Fraction(5)}, long={"deadline_us": 6}),
        Objective.LATE_JOBS,
    ),
    # A job without a deadline is never late.
    case("late jobs without deadline", 0, _short_and_long(short={"deadline_us": 2}), Objective.LATE_JOBS),
    # Short first: max(1, 8 / 6) = 4 / 3; long first: max(1, 8 / 2) = 4.
    case("max slowdown", "4/3", _short_and_long(), Objective.MAX_SLOWDOWN),
)

CASES = RULES + SLOTS + RESTRICTED + OBJECTIVES
