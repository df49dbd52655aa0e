"""An answer about servers, shown: its tables on a terminal and on a page, what was reached over sizes, replications.

By the interval: how many servers in each, what that costs, and what forces the peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from truenorth.executor import Knows
from truenorth.models.record import ABSENT
from truenorth.models.scenario import load_scenario, read_timeline
from truenorth.models.slo import ServiceLevel
from truenorth.planner.answers.replications import BOUND, CountSpread, Replications
from truenorth.planner.answers.servers.answer import ServersAnswer
from truenorth.planner.answers.servers.deployable import lead
from truenorth.planner.answers.servers.record import (
    AlternativeSize,
    AutoscalerCosts,
    IntervalCount,
    IntervalRow,
    PolicySize,
    ReachedSize,
    ScheduleCosts,
    ScheduleRecord,
    ServersOrigin,
    ServersRecord,
    Size,
    StrainReached,
)
from truenorth.planner.answers.servers.scheduled import ScheduleAnswer
from truenorth.planner.answers.shown import Shown
from truenorth.planner.answers.split import say_split
from truenorth.planner.show.comparison import StreamRow, tokens
from truenorth.planner.show.curves import Curve, Curves, Point, dots, lines
from truenorth.planner.show.section import PageSection
from truenorth.planner.show.servers_words import (
    absences_in_words,
    assumptions,
    cost_of,
    deployable_in_words,
    describe_fleet,
    describe_largest,
    describe_mix,
    describe_size,
    engines_in_words,
    fitted_in_words,
    forms_in_words,
    information_in_words,
    measured,
    missed_in_words,
    not_tried_in_words,
    order_in_words,
    reached_in_words,
    recommendation,
    say_spare,
    sentences,
    strain_in_words,
    untried,
    up_to_counts,
    values_in_words,
)
from truenorth.planner.show.styles import STYLES, Style, styles
from truenorth.planner.show.summaries import rounded_in_words
from truenorth.planner.show.table import Column, Table, terminal
from truenorth.planner.show.timelines import Timelines, timelines_of
from truenorth.planner.show.written import read_both

FILE = "answer.json"
NOT_MONOTONE = (
    "Policies are not monotone in the number of servers: where a size counts as simulated, so was every smaller one "
    "that is not refuted. The plan knows the future, the online policies do not."
)
Needed = tuple[str, str, Size, str]
"""Who, the information used, what size it needs, and the evidence."""


def sizes_table(found: ServersRecord, title: str) -> Table[Needed]:
    """Return a row for the plan and one per policy."""
    plan = ("plan (offline optimum)", Knows.FUTURE.information, found.minimum.size, _proof(found))
    policies = [(name, size.information_used, size.size, _trial(found, name)) for name, size in found.policies.items()]
    columns: list[Column[Needed]] = [
        Column("", lambda row: row[0], words=True),
        Column("information used", lambda row: row[1], words=True),
        Column("cheapest mix" if found.priced else "servers", lambda row: describe_size(found, row[2])),
        Column("evidence", lambda row: row[3], words=True),
    ]
    return Table(title, columns, [plan, *policies])


def _proof(found: ServersRecord) -> str:
    minimum, refutation = found.minimum, found.refutation
    if minimum.proved:
        cheaper = f"every cheaper one{up_to_counts(found, ' of at most {}')} refuted"
        return f"proved: a plan at this size, {cheaper}" if refutation else "a plan; the smallest"
    if refutation is not None and refutation.however_many:
        return "refuted, however many servers there are"
    if not found.open_sizes:
        return f"refuted up to {describe_largest(found)}"
    least = f"{minimum.lower_bound_price_per_hour:g} per hour" if found.priced else minimum.lower_bound
    if minimum.size.servers is None:
        return "no plan found" if refutation is None else f"at least {least}; no plan found"
    if refutation is None:
        return "a plan; no smaller size is refuted"
    return f"a plan; the minimum is between {least} and this"


def _trial(found: ServersRecord, name: str) -> str:
    """Return how the size of a policy is known: by simulation, as far as there was time."""
    policy = found.policies[name]
    tried, left_out = len(policy.reached), policy.not_simulated
    time_up = f"no time for {left_out} {'size' if left_out == 1 else 'sizes'}"
    if policy.size.servers is not None:
        return f"simulated; {time_up} below" if left_out else "simulated"
    if not tried:
        return "not simulated: no time left" if left_out else "not simulated: every size is refuted"
    last = describe_size(found, policy.reached[-1].size)
    fails = "cannot serve" if policy.closest is None else "misses the level"
    closest = "" if policy.closest is None else f"; closest with {reached_in_words(found, name)}"
    if not left_out:
        return f"{fails} at every size up to {last}{closest}"
    sizes = "the one size" if tried == 1 else f"the {tried} sizes"
    return f"{fails} at {sizes} simulated ({'' if tried == 1 else 'up to '}{last}){closest}; {time_up}"


def alternatives_table(found: ServersRecord) -> Table[AlternativeSize]:
    """Return a row for each policy and size near the best price, with its metrics."""
    columns: list[Column[AlternativeSize]] = [
        Column("policy", lambda row: row.policy, words=True),
        Column("information used", lambda row: row.information_used, words=True),
        Column("size", lambda row: describe_size(found, row.size), words=True),
        Column("mean latency in s", lambda row: row.metrics.mean_latency_s, ".4g"),
        Column("p95 in s", lambda row: row.metrics.p95_latency_s, ".4g"),
        Column("p99 in s", lambda row: row.metrics.p99_latency_s, ".4g"),
        Column("mean slowdown", lambda row: row.metrics.mean_slowdown, ".4g"),
        Column("hit rate", lambda row: row.metrics.hit_rate, ".1%"),
        Column("utilisation", lambda row: row.metrics.compute_busy, ".0%"),
        Column("work in GPU-s", lambda row: f"{row.work.gpu_seconds:.4g} of {row.work.offered_gpu_seconds:.4g}"),
    ]
    if found.spare:
        gone = say_spare(found, "at worst with {} gone")
        columns.insert(3, Column(gone, lambda row: values_in_words(found, row.value_with_spare_gone), words=True))
    title = "Alternatives: the least for each kind of information used, and up to 10 % more"
    return Table(title, columns, found.alternatives)


def _tokens_table(found: ServersRecord) -> list[Table[StreamRow]]:
    """Return the table of their tokens, where there are any."""
    return tokens((f"{each.policy}, {describe_size(found, each.size)}", each.metrics) for each in found.alternatives)


def strains_table(found: ServersRecord) -> Table[StrainReached]:
    """Return a row for every model and figure of it that the best answer was simulated with, the worst first."""
    columns: list[Column[StrainReached]] = [
        Column("model", lambda row: row.model, words=True),
        Column("20 % more", lambda row: row.figure, words=True),
        Column("reached", lambda row: ", ".join("-" if v is None else f"{v:.4g}" for v in _listed(row.value))),
        Column("level", lambda row: "met" if row.met else "cannot be served" if row.value is None else "missed"),
        Column("of the limit", lambda row: row.share_of_limit, ".1%"),
    ]
    return Table("Sensitivity: one model 20 % larger or slower", columns, found.sensitivity)


def _listed(value: float | list[float | None] | None) -> list[float | None]:
    return value if isinstance(value, list) else [value]


def view(answer: ServersAnswer) -> Group:
    """Return the table with the sentences that belong to it."""
    found = answer.record()
    faster = "" if answer.rate == 1 else f" at {found.rate:g} times the traffic"
    spare = say_spare(found, ", with {} gone")
    failing = "" if found.failures is ABSENT else f", with failures of {found.failures.rate}"
    title = f"{answer.sizes.scenario.name}: servers for {answer.levels}{faster}{spare}{failing}"
    rounded = "" if found.rounded_up is None else rounded_in_words(found.rounded_up)
    split = say_split(answer.sizes.scenario.instance)
    first = (
        deployable_in_words(found),
        forms_in_words(found),
        engines_in_words(found),
        not_tried_in_words(found),
        *absences_in_words(found),
        *missed_in_words(found),
        strain_in_words(found),
        rounded,
        split,
        *fitted_in_words(found),
    )
    said = [f"{words}." for words in first if words]
    parts: list[Any] = [Text(" ".join(said))] if said else []
    parts.append(terminal(sizes_table(found, title)))
    if len(found.alternatives) > 1:
        parts.append(terminal(alternatives_table(found)))
        parts += (terminal(table) for table in _tokens_table(found))
    done = found.refutation
    if done is not None:
        again = "can be computed again (truenorth verify)" if done.recomputable else "not re-computable"
        what = "any number of servers" if done.however_many else describe_size(found, done.size)
        left = "with only " if found.spare and not done.however_many else ""
        parts.append(Text(f"Why not {left}{what}{' left' if left else ''} ({done.method}, {again}): {done.forces}"))
    if answer.policies:
        parts.append(Text(NOT_MONOTONE, style="italic"))
    return Group(*parts)


def replications_view(made: Replications) -> Group:
    """Return the spread over all replications, what to count on, and the window that needs most."""
    unit = "price per hour" if made.priced else "servers"
    count, sure = len(made.replications), f"{float(made.confidence):.4g}"
    columns: list[Column[tuple[str, CountSpread]]] = [
        Column("", lambda row: row[0], words=True),
        Column("least", lambda row: row[1].least, "g"),
        Column("median", lambda row: row[1].median, "g"),
        Column("most", lambda row: row[1].most, "g"),
        Column("found in", lambda row: f"{row[1].found} of {count}"),
        Column(
            f"enough for the next ({float(made.confidence):.3g})",
            lambda row: None if row[0] == BOUND else row[1].enough,
            "g",
        ),
        Column("needs most", lambda row: None if row[0] == BOUND else row[1].hardest, words=True),
    ]
    title = f"{made.scenario.name}: {unit} for {made.levels}, over {count} {made.what}"
    note = (
        f"'Enough' serves the next window, too, with a probability of at least {sure}, if windows might as well have "
        f"come in another order; it takes at least {fewest(made.confidence)} replications."
    )
    return Group(terminal(Table(title, columns, list(made.spread.items()))), Text(note, style="italic"))


def fewest(confidence: Fraction) -> int:
    """Return how many replications a recommendation takes.

    >>> fewest(Fraction(9, 10)), fewest(Fraction(1, 2))
    (9, 1)
    """
    return ceil(confidence / (1 - confidence))


def section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``servers -o`` wrote; its plan's timeline is read from the plan file.

    Raises
    ------
    InputError
        If a file in it cannot be read.
    """
    found, origin = read_both(folder / FILE, ServersRecord, ServersOrigin)
    return PageSection(
        f"{origin.scenario.name}: {'which servers' if found.priced else 'how many servers'} are enough for "
        f"{found.levels}?",
        order_in_words(found),
        sentences(found) if found.alternatives else [],
        tables(found),
        figures(found),
        leading=1 if found.alternatives else 0,
        notes=[f"What this assumes: {' '.join(assumptions(found, origin.scenario))}", *untried(found), NOT_MONOTONE],
        timelines=_timelines(folder, found),
        reproduce=origin.steps,
        scenario=origin.scenario.titled,
    )


def tables(found: ServersRecord) -> list[Table[Any]]:
    """Return what is said of an answer in tables, the recommendation first if there is one."""
    made: list[Table[Any]] = [sizes_table(found, f"Servers for {found.levels}")]
    if found.alternatives:
        made.insert(0, Table("Recommendation", _DECIDED, recommendation(found)))
        made += [alternatives_table(found), *_tokens_table(found)]
    return [*made, *([strains_table(found)] if found.sensitivity else [])]


def figures(found: ServersRecord) -> list[Curves]:
    """Return what tighter and looser limits cost, and what each policy reaches at what price or size."""
    return [*_costs(found), *_reached(found)]


_DECIDED: list[Column[tuple[str, str]]] = [
    Column("", lambda row: row[0], words=True),
    Column("", lambda row: row[1], words=True),
]


def _reached(found: ServersRecord) -> list[Curves]:
    """Return what plan and policies reach over the number of servers or the price, beside what each level asks."""
    asked = found.levels.levels
    return [curve for place, level in enumerate(asked) for curve in _reached_of(found, level, place)]


def _reached_of(found: ServersRecord, level: ServiceLevel, place: int) -> list[Curves]:
    """Return the picture of one level, where there is anything to show."""
    plan = ReachedSize(found.minimum.size, found.minimum.value)
    tried: dict[str, list[ReachedSize]] = {"plan (knows the future)": [plan]}
    tried |= {policy: size.reached for policy, size in found.policies.items()}
    series: dict[str, list[tuple[Size, float]]] = {}
    for name, sizes in tried.items():
        values = [(at.size, _of_level(at, place)) for at in sizes]
        if points := [(at, value) for at, value in values if value is not None]:
            series[name] = points
    if not series:
        return []
    logarithmic = level.measure != "lateness"
    label = f"{_measured(level)} (logarithmic)" if logarithmic else _measured(level)
    if found.priced:
        title = f"{_measured(level)} over the price of the mixes simulated"
        placed = {name: [_at_price(found, *point) for point in points] for name, points in series.items()}
        return [dots(title, "price per hour", label, placed, _limit(level), logarithmic)]
    title = f"{_measured(level)} over the number of servers"
    counted: Mapping[str, list[Point]] = {
        name: [(at.servers or 0, value) for at, value in points] for name, points in series.items()
    }
    return [lines(title, "servers", label, counted, _limit(level), logarithmic)]


def _of_level(at: ReachedSize, place: int) -> float | None:
    """Return what was reached of one level's figure."""
    return None if at.value is None else _listed(at.value)[place]


def _costs(found: ServersRecord) -> list[Curves]:
    """Return, per level about times, the least size or price at which each policy kept each limit, tight or loose.

    Of policies that know no more of run times than the one to order.
    """
    made, drawn = [], styles(found.policies)
    for place, level in enumerate(found.levels.levels):
        curves = [
            Curve(
                name,
                [(value, cost) for value, cost, _ in best],
                drawn[name].colour,
                stroke=drawn[name].stroke,
                steps=True,
                words=_kept(name, best),
            )
            for name, size in found.policies.items()
            if _knows_no_more(found, size) and (best := _cheapest(found, size, place))
        ]
        if level.measure == "lateness" or all(len(curve.points) < 2 for curve in curves):
            continue
        unit = "price per hour" if found.priced else "servers"
        limit, top = _limit(level), max(cost for curve in curves for _, cost in curve.points)
        asked = Curve(limit[0], [(limit[1], 0.0), (limit[1], top)], bold=True)
        title = f"What a tighter or looser limit costs: {unit} over {_measured(level)}"
        made.append(Curves(title, f"{_measured(level)} (logarithmic)", unit, [asked, *curves], x_logarithmic=True))
    return made


def _cheapest(found: ServersRecord, policy: PolicySize, place: int) -> list[tuple[float, float, str]]:
    """Return what a policy reached of one level's figure, and at what cost, where no lower cost reaches as much."""
    values = [(_of_level(at, place), at.size) for at in policy.reached]
    seen = sorted(
        (value, cost_of(found, size), describe_size(found, size)) for value, size in values if value is not None
    )
    # What costs no less than a size that reaches less is no reason to loosen the level.
    return [each for rank, each in enumerate(seen) if all(each[1] < before[1] for before in seen[:rank])]


def _kept(name: str, best: list[tuple[float, float, str]]) -> list[str]:
    return [f"{name}: {size} reaches {value:.5g}" for value, _, size in best]


def _knows_no_more(found: ServersRecord, policy: PolicySize) -> bool:
    best = [each.knows for each in found.alternatives[:1]]
    leads = [lead(knows, found.noise) for knows in (policy.knows, *best)]
    return leads[0] <= leads[-1]


def _at_price(found: ServersRecord, at: Size, value: float) -> tuple[float, float, str]:
    mix, price = describe_mix(found, at.mix or []), at.price_per_hour or 0.0
    return price, value, f"{value:.5g} with {mix} at {price:g} per hour"


def _measured(level: ServiceLevel) -> str:
    return f"{measured(level)}{' in s' if level.is_time else ''}"


def _limit(level: ServiceLevel) -> tuple[str, float]:
    """Return the name and height of the line that the level draws."""
    if level.measure == "lateness":
        return str(level), float(level.share or 1)
    return str(level), level.reported(level.limit)


def _timelines(folder: Path, found: ServersRecord) -> Timelines | None:
    """Return the recommended fleet under its policy, drawn, and then the clairvoyant plan on the fleet it needs."""
    drawn = [("plan", True, found.minimum.size, "enough.json", "plan.json")]
    for best in found.alternatives[:1]:
        drawn.insert(0, (best.policy, best.knows is Knows.FUTURE, best.size, "recommended.json", "served.json"))
    shown = []
    for name, ahead, size, scenario, timeline in drawn:
        if (folder / scenario).is_file() and (folder / timeline).is_file():
            instance = load_scenario(folder / scenario).instance
            fleet = describe_fleet(found, size)
            found_there = read_timeline(folder / timeline, instance).timeline
            shown.append(Shown(f"{name} on {fleet}", ahead, instance, found_there))
    return timelines_of(shown) if shown else None


SCHEDULE_FILE = "schedule.json"
_PLAN = "plan (offline optimum)"
_MOST_ROWS = 48
"""A terminal shows at most so many intervals; the document has all."""


def intervals_table(found: ScheduleRecord, title: str) -> Table[IntervalRow]:
    """Return a row per interval: floor, plan, policies, the autoscaler, and who misses the level in some of them."""
    policies = found.schedule.policies
    columns: list[Column[IntervalRow]] = [
        Column("from", lambda row: f"{row.from_s:g} s"),
        Column("jobs", lambda row: row.jobs),
        Column("floor", lambda row: row.minimum.lower_bound),
        Column("plan", lambda row: _size(found, row.minimum)),
        *(Column[IntervalRow](who, partial(_size_of, found, who)) for who in policies),
    ]
    if found.schedule.autoscaler is not None:
        columns.append(Column("autoscaler", lambda row: row.autoscaler and row.autoscaler.servers))
    columns += [_attainment(found, who) for who in policies if _missed(found, who)]
    return Table(title, columns, found.intervals)


def _size_of(found: ScheduleRecord, who: str, row: IntervalRow) -> str | None:
    return _size(found, row.policies[who])


def _attainment(found: ScheduleRecord, who: str) -> Column[IntervalRow]:
    """Return the column of what the jobs of each interval come to; of a mean there is no share of them."""
    if _shares(found):
        return Column(f"{who} {_within(found)}", lambda row: row.policies[who].attainment, ".1%")
    words = {True: "met", False: "missed", None: None}
    return Column(f"level under {who}", lambda row: words[row.policies[who].met_alone])


def _shares(found: ScheduleRecord) -> bool:
    """Say whether every level asks for a share of the jobs."""
    return all(level.share is not None for level in found.fixed.levels)


def _within(found: ScheduleRecord) -> str:
    return "in time" if all(level.measure == "lateness" for level in found.fixed.levels) else "within the limit"


def _size(found: ScheduleRecord, count: IntervalCount) -> str | None:
    if count.mix is None:
        return None
    return describe_mix(found.fixed, count.mix) or "0" if len(count.mix) > 1 else str(count.servers)


def schedule_view(answer: ScheduleAnswer) -> Group:
    """Return the fleet that stays, the intervals, and hours and price of both."""
    found = answer.record
    table = intervals_table(found, f"{answer.day.sizes.scenario.name}: servers by {found.by_s:g} s")
    seen = replace(table, rows=found.intervals[:_MOST_ROWS])
    parts: list[Any] = [view(answer.fixed), Text(), terminal(seen)]
    if len(found.intervals) > _MOST_ROWS:
        parts.append(Text(f"and {len(found.intervals) - _MOST_ROWS} intervals more"))
    parts += [Text(line) for line in schedule_sentences(found)]
    return Group(*parts)


def schedule_to_order(found: ScheduleRecord) -> str:
    """Return the cheapest schedule of a policy, of those that know least of run times; the plan's where none met it."""
    noise = found.fixed.noise
    met = {name: costs for name, costs in found.schedule.policies.items() if costs.server_hours is not None}
    if not met:
        return f"No policy meets the level on any fleet looked at; a plan {_costs_in_words(found.schedule.optimum)}."
    sizes = found.fixed.policies

    def rank(name: str) -> tuple[int, float]:
        return lead(sizes[name].knows, noise), met[name].price or met[name].server_hours or 0.0

    best = min(met, key=rank)
    used = information_in_words(sizes[best].information_used, sizes[best].knows, noise)
    return f"Order by the interval for {best} (information used: {used}): {_costs_in_words(met[best])}."


def schedule_sentences(found: ScheduleRecord) -> list[str]:
    """Return hours and price beside those of a fleet that stays, and what forces the interval of the highest floor."""
    optimum, scaled = found.schedule.optimum, found.schedule.autoscaler
    schedules: dict[str, ScheduleCosts] = {_PLAN: optimum, **found.schedule.policies}
    said = [f"{name}: {_costs_in_words(costs)}" for name, costs in schedules.items()]
    said += [words for who in found.schedule.policies if (words := _missed_in_words(found, who))]
    if scaled is not None:
        how = "meets the level" if scaled.met else "does not meet the level"
        price = "" if scaled.price is None else f" at {scaled.price:.4g}"
        what = (
            f"an autoscaler above {scaled.policy} that aims at {scaled.target:.0%} of {scaled.target_of} in use {how}"
        )
        said.append(f"{what}, with {scaled.server_hours:.4g} server-hours{price}{_unpaid(scaled)}")
    if optimum.proved:
        said.append("No schedule needs less, which is proved.")
    elif optimum.price_lower_bound is not None:
        said.append(f"No schedule costs less than {optimum.price_lower_bound:.4g} (proved).")
    elif optimum.server_hours_lower_bound is not None:
        hours = f"{optimum.server_hours_lower_bound:.4g} server-hours"
        said.append(f"No schedule needs less than {hours} (proved).")
    peak = max(found.intervals, key=lambda row: row.minimum.lower_bound)
    return said + ([f"The peak: {peak.forces}."] if peak.forces else [])


def _missed(found: ScheduleRecord, policy: str) -> list[tuple[IntervalRow, float]]:
    """Return the intervals whose own jobs miss the level, though all jobs together meet it; the worst first."""
    counts = [(row, row.policies[policy]) for row in found.intervals]
    missed = [(row, count.attainment or 0.0) for row, count in counts if count.met_alone is False]
    return sorted(missed, key=lambda pair: pair[1])


def _missed_in_words(found: ScheduleRecord, policy: str) -> str:
    """Return which interval misses what all together meet; empty if none does."""
    missed = _missed(found, policy)
    if not missed:
        return ""
    worst, share = missed[0]
    in_time = f", {share:.1%} of its jobs {_within(found)}" if share and _shares(found) else ""
    intervals = f"{len(missed)} of {len(found.intervals)} intervals"
    alone = f"misses it in {intervals} taken alone, most from {worst.from_s:g} s on{in_time}"
    return f"{policy} meets the level over all jobs together, but {alone}."


def _costs_in_words(costs: ScheduleCosts) -> str:
    if costs.server_hours is None:
        return "meets the level on no fleet that was looked at"
    said = f"{costs.server_hours:.4g} server-hours"
    if costs.price is not None:
        said += f" at {costs.price:.4g}"
    if costs.fixed_server_hours is not None:
        said += f", a fleet that stays {costs.fixed_server_hours:.4g}"
        said += "" if costs.fixed_price is None else f" at {costs.fixed_price:.4g}"
    return f"{said}{_unpaid(costs)}"


def _unpaid(costs: ScheduleCosts | AutoscalerCosts) -> str:
    """Return what the figures leave out, as intervals end with the one of the last arrival; empty if nothing."""
    hours = costs.unpaid_server_hours
    if hours is ABSENT:
        return ""
    return f" (not counted: {hours:.4g} server-hours of work after the last interval)"


def schedule_section(folder: Path) -> PageSection:
    """Return what a page says of a folder that ``servers --by -o`` wrote.

    Raises
    ------
    InputError
        If its file cannot be read.
    """
    found, origin = read_both(folder / SCHEDULE_FILE, ScheduleRecord, ServersOrigin)
    levels = found.fixed.levels
    assumed = " ".join(assumptions(found.fixed, origin.scenario)[:-1])
    return PageSection(
        f"{origin.scenario.name}: how many servers in every {found.by_s:g} s are enough for {levels}?",
        schedule_to_order(found),
        schedule_sentences(found),
        [
            intervals_table(found, "Servers by the interval"),
            sizes_table(found.fixed, f"A fleet that stays, for {levels}"),
        ],
        [_counts(found)],
        reproduce=origin.steps,
        leading=0,
        notes=[f"What this assumes: {assumed} Servers come and go as ordered, and none fails."],
        scenario=origin.scenario.titled,
    )


def _counts(found: ScheduleRecord) -> Curves:
    """Return how many servers there are over time: the floor, the plan, policies and the autoscaler."""
    rows = found.intervals
    series: dict[str, list[int | None]] = {
        "floor": [row.minimum.lower_bound for row in rows],
        "plan (knows the future)": [row.minimum.servers for row in rows],
        **{name: [row.policies[name].servers for row in rows] for name in found.schedule.policies},
    }
    if found.schedule.autoscaler is not None:
        series["autoscaler"] = [row.autoscaler.servers if row.autoscaler else None for row in rows]
    curves = [_steps(rows, name, counts, place) for place, (name, counts) in enumerate(series.items())]
    return Curves(
        "Servers over time", "time in s", "servers", [curve for curve in curves if curve is not None], x_from=0.0
    )


def _steps(rows: list[IntervalRow], name: str, counts: list[int | None], place: int) -> Curve | None:
    known = [(row.from_s, float(count)) for row, count in zip(rows, counts, strict=True) if count is not None]
    if not known:
        return None
    points = [*known, (rows[-1].to_s, known[-1][1])]
    style = STYLES[place - 1] if place else Style("", "solid")
    return Curve(name, points, style.colour, bold=not place, stroke="dashed" if place > 1 else "solid", steps=True)
