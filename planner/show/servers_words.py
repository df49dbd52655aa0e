"""An answer about servers in words: what to order, what it hangs on, how sure the least size is, and what forces it.

Of priced groups only the price has a bound worth saying: one dear server may do where many cheap ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor

from truenorth.executor import POLICIES, Knows, parse_policy
from truenorth.executor.policies.gateways import GatewayOptions
from truenorth.models.cluster import engine_kind
from truenorth.models.metrics import StreamMetrics
from truenorth.models.record import ABSENT
from truenorth.models.slo import ServiceLevel
from truenorth.planner.answers.servers.record import (
    AlternativeSize,
    AssumedWindow,
    FailuresDrawn,
    Figures,
    FormOfFleet,
    GroupOfServers,
    GrowthTaken,
    ServersRecord,
    Size,
    StrainReached,
)
from truenorth.planner.answers.uncertain.spec import MEAN, parse_uncertainty
from truenorth.planner.show.table import say

_UNITS = ", in the price units of the scenario"
"""Scenarios name no currency."""
HOURS_PER_MONTH = 730
"""A twelfth of a year."""


def order_in_words(found: ServersRecord) -> str:
    """Return what to order; where no policy met the level, what is known instead."""
    if not found.alternatives:
        return answer_in_words(found)
    best = found.alternatives[0]
    untried = found.policies[best.policy].not_simulated
    price = best.size.price_per_hour or 0.0 if found.priced else 0.0
    size = describe_fleet(found, best.size)
    parts = [
        _headroom(found),
        _failures(found),
        f"{say_less(found, untried)} untried" if untried else "",
        _floor_price(found),
    ]
    said = f" at {price_in_words(price)}" if found.priced else ""
    said += "".join(f"; {part}" for part in parts if part)
    served = [
        f"Policy: {_who(found, best)}{_preempted(best)}",
        forms_in_words(found),
        engines_in_words(found),
        not_tried_in_words(found),
        *absences_in_words(found),
    ]
    first = f"Recommended: {'at most ' if untried else ''}{size}{said}."
    return " ".join([first, *(f"{part}." for part in served if part)])


def recommendation(found: ServersRecord) -> list[tuple[str, str]]:
    """Return what a purchase is decided by, each under its name: fleet, price, headroom, failure, lower bound, N+1."""
    if not found.alternatives:
        return []
    best = found.alternatives[0]
    size = describe_fleet(found, best.size)
    growth, minimum = found.growth, found.minimum
    least = f"{_amount(minimum.lower_bound_price_per_hour or 0)} per hour" if found.priced else minimum.lower_bound
    refuted = found.refutation is not None and not found.refutation.however_many
    return [
        ("fleet", size),
        ("policy", best.policy),
        *([("price", f"{price_in_words(best.size.price_per_hour or 0.0)}{_UNITS}")] if found.priced else []),
        ("traffic", "not simulated" if growth is None else traffic_in_words(growth)),
        ("redundancy", _redundancy(found)),
        ("lower bound", f"{least}{up_to_counts(found, ' on at most {}')} (proved)" if refuted else "none"),
    ]


def price_in_words(price: float) -> str:
    """Return a price per hour with what it comes to in a month.

    >>> price_in_words(3.5)
    '3.50 per hour, 2,560 per month'
    """
    return f"{_amount(price)} per hour, {_rounded(price * HOURS_PER_MONTH)} per month"


def traffic_in_words(growth: GrowthTaken) -> str:
    """Return how much more traffic a size takes."""
    if growth.fails is None:
        as_fast = f"the same jobs {growth.holds:g} times as fast"
        return f"handles {_percent(growth.holds, floor)} more ({as_fast}), the most that was tried"
    if growth.holds == 1:
        return f"does not handle {_percent(growth.fails, ceil)} more"
    return f"handles {_percent(growth.holds, floor)} more, not {_percent(growth.fails, ceil)}"


def _redundancy(found: ServersRecord) -> str:
    """Return what failures a size survives, in the words of N+k."""
    k = max(1, found.spare)
    if found.failures is not ABSENT:
        return f"{found.failures.rate}: the target is met in each of {len(found.failures.outages or ())} draws"
    if found.survives_failure is None:
        return f"N+{found.spare}" if found.spare else "not simulated"
    if found.survives_failure:
        return f"N+{k}: the target is met with any {f'{k} servers' if k > 1 else 'one server'} gone"
    return f"N+0: one failure breaks the target; --spare {k} sizes for N+{k}"


def _amount(price: float) -> str:
    """Return a price with its cents, if it has any.

    >>> _amount(1090.0), _amount(1.5)
    ('1,090', '1.50')
    """
    return f"{price:,.2f}".removesuffix(".00")


def _rounded(amount: float) -> str:
    """Return an amount to three digits.

    >>> _rounded(2336.0), _rounded(1.46)
    ('2,340', '1.46')
    """
    return say(amount, ".3g")


def _failures(found: ServersRecord) -> str:
    """Return whether as many servers may fail as are spare, else whether one may; empty if that was not simulated."""
    if found.survives_failure is None:
        return ""
    failures = f"{found.spare} failures" if found.spare > 1 else "one failure"
    return f"survives {failures}: {'yes' if found.survives_failure else 'no'}"


def _headroom(found: ServersRecord) -> str:
    """Return by how much traffic may grow; empty if there was no time to simulate that."""
    growth = found.growth
    if growth is None:
        return ""
    if growth.fails is None:
        return f"{_percent(growth.holds, floor)} headroom or more"
    if growth.holds == 1:
        return f"less than {_percent(growth.fails, ceil)} headroom"
    return f"{_percent(growth.holds, floor)} headroom"


def _percent(factor: float, rounded: Callable[[float], int]) -> str:
    """Return how much more a factor is, to whole percents from 10 on, never more favourable than it is.

    >>> _percent(1.6875, floor), _percent(1.875, ceil), _percent(1.0125, floor)
    ('68 %', '88 %', '1.2 %')
    """
    percent = round(100 * (factor - 1), 9)
    return f"{rounded(10 * percent) / 10 if percent < 10 else rounded(percent):g} %"


def _floor_price(found: ServersRecord) -> str:
    """Return below what no plan lies, where anything is refuted."""
    if found.refutation is None or found.refutation.however_many:
        return ""
    if not found.priced:
        return f"lower bound {found.minimum.lower_bound}"
    least = found.minimum.lower_bound_price_per_hour
    return "" if least is None else f"lower bound {_amount(least)}{up_to_counts(found, ' on at most {}')}"


def information_in_words(used: str, known: Knows, noise: str | None) -> str:
    """Return the information that a policy uses; `noise` is under what it was simulated.

    >>> information_in_words("queue lengths", Knows.WAITS, None)
    'queue lengths'
    >>> information_in_words("run times", Knows.RUN_TIMES, "told=mean")
    'run times, told mean run times only'
    """
    asked = parse_uncertainty(noise)
    if noise is None or (known is Knows.NOTHING and asked.keeps_truth):  # what is told changes nothing
        return used
    if asked.told_means and known is not Knows.FUTURE and asked.noise is None:
        return f"{used}, told {MEAN} run times only"
    return f"{used}, under {noise}"


def describe_size(found: ServersRecord, size: Size) -> str:
    """Return a number of servers, or a mix by its GPU kinds with its price; a dash where there is none."""
    if size.servers is None:
        return "-"
    if not size.servers:
        return "no server"
    if not found.priced:
        return str(size.servers) if size.mix is ABSENT else describe_fleet(found, size)
    return f"{describe_fleet(found, size)} at {size.price_per_hour:g} per hour"


def describe_fleet(found: ServersRecord, size: Size) -> str:
    """Return how many servers, of several groups or with engines to choose which."""
    return say_servers(size.servers or 0) if size.mix in (None, ABSENT) else describe_mix(found, size.mix)


def describe_largest(found: ServersRecord) -> str:
    """Return the most servers that were looked at, with their price."""
    if not found.priced:
        return str(found.largest.servers) if found.largest.mix is ABSENT else _most(found)
    return f"{_most(found)} at {found.largest.price_per_hour:g} per hour"


def _most(found: ServersRecord) -> str:
    """Return the most servers of each sort that were looked at, whatever their engines."""
    if all(group.engines is ABSENT for group in found.groups):
        return describe_mix(found, found.largest.mix or [])
    counts: dict[str, int] = {}
    labels = [engine_kind(group.gpus_per_server, group.gpu) for group in found.groups]
    for label, count in zip(labels, found.largest.mix or [], strict=True):
        counts[label] = counts.get(label, 0) + count
    return " + ".join(f"{count} {label}" for label, count in counts.items() if count)


def describe_mix(found: ServersRecord, mix: list[int]) -> str:
    """Return how many servers of which GPU kind; groups of one kind are told apart by their place in the file."""
    return " + ".join(f"{count} {label}" for count, label in zip(mix, _labels(found.groups), strict=True) if count)


def _labels(groups: Sequence[GroupOfServers]) -> list[str]:
    """Return what the servers of each group are called."""
    names = [f"{engine_kind(group.gpus_per_server, group.gpu)}{_engines(group)}" for group in groups]
    return [
        name if names.count(name) == 1 else f"{name} (group {number})" for number, name in enumerate(names, start=1)
    ]


def _engines(group: GroupOfServers) -> str:
    """Return the GPUs of each engine of a server, where they say more than that each GPU is one.

    >>> _engines(GroupOfServers("H100", 8, [4, 2, 2])), _engines(GroupOfServers("H100", 8, [8]))
    (' (engines of 4 + 2 + 2 GPUs)', ' (an engine of 8 GPUs)')
    """
    if group.engines is ABSENT:
        return ""
    if len(group.engines) == 1:
        return f" (an engine of {group.engines[0]} GPUs)"
    return f" (engines of {' + '.join(map(str, group.engines))} GPUs)"


def answer_in_words(found: ServersRecord) -> str:
    """Return what is said of an answer, in one paragraph."""
    return " ".join(sentences(found))


def sentences(found: ServersRecord) -> list[str]:
    """Return what can be deployed and its floor, what it hangs on, how sure the least size is, and what forces it."""
    minimum, refutation = found.minimum, found.refutation
    size = _counted(found, minimum.size)
    enough = f"enough{say_spare(found, ' with {} of them gone')}"
    if minimum.size.servers is None:
        said = _nothing_found(found)
    elif minimum.proved:
        cheaper = f"no cheaper size{up_to_counts(found, ' of at most {}')}"
        said = f"With the future known, {size} {enough}, and {cheaper} is, which is proved"
    elif refutation is None:
        said = f"With the future known, {size} {enough}; whether less is enough is open"
    else:
        said = f"With the future known, {size} {enough}; {_too_little(found)}, and what lies between is open"
    parts = [
        deployable_in_words(found),
        forms_in_words(found),
        engines_in_words(found),
        not_tried_in_words(found),
        *absences_in_words(found),
        strain_in_words(found),
        said,
        *missed_in_words(found),
        "" if refutation is None else refutation.forces,
    ]
    return [f"{part}." for part in parts if part]


def _nothing_found(found: ServersRecord) -> str:
    slo, upto = found.levels, describe_largest(found)
    if found.refutation is not None and found.refutation.however_many:
        return f"No number of servers meets {slo}, which is proved"
    servers = "" if found.priced else " servers"
    if not found.open_sizes:
        return f"No plan on up to {upto}{servers} meets {slo}, which is proved"
    said = f"No plan within {slo} was found on up to {upto}{servers}"
    return said if found.refutation is None else f"{said}; {_too_little(found)}"


def _too_little(found: ServersRecord) -> str:
    """Return what the bound says, where something is refuted."""
    if found.priced:
        no_mix = f"no mix{up_to_counts(found, ' of at most {}')}"
        return f"below {found.minimum.lower_bound_price_per_hour:g} per hour {no_mix} is, which is proved"
    return f"fewer than {found.minimum.lower_bound} are proved too few"


def deployable_in_words(found: ServersRecord) -> str:
    """Return the policy that meets the level at the least size, the floor below it, and how much more traffic it takes.

    It can be deployed without knowing the future. Empty if no policy met the level.
    """
    if not found.alternatives:
        return ""
    best = found.alternatives[0]
    untried = found.policies[best.policy].not_simulated
    size = _sized(found, best.size)
    left_out = f"{say_less(found, untried)} {'was' if untried == 1 else 'were'} not tried for lack of time"
    needs = f"needs at most {size} ({left_out})" if untried else f"needs {size}"
    spare = say_spare(found, ", {} of which may be gone") + _with_gone(found, best)
    said = f"{_who(found, best)} {needs}{spare}{_preempted(best)}{_better_informed(found)}{_floor(found)}"
    growth = found.growth
    return said if growth is None else f"{said}. Traffic: this size {traffic_in_words(growth)}"


def _who(found: ServersRecord, alternative: AlternativeSize) -> str:
    """Return a policy with the information that it uses."""
    used = information_in_words(alternative.information_used, alternative.knows, found.noise)
    return f"{alternative.policy} (information used: {used})"


def _with_gone(found: ServersRecord, alternative: AlternativeSize) -> str:
    """Return what is reached with servers gone, at worst, and with all there; empty if none may be gone."""
    if alternative.value_with_spare_gone is ABSENT:
        return ""
    worst, whole = (values_in_words(found, each) for each in (alternative.value_with_spare_gone, alternative.value))
    return f" (at worst {worst} then; {whole} with all there)"


def _preempted(alternative: AlternativeSize) -> str:
    """Return how often requests are preempted, where they are."""
    metrics = alternative.metrics
    count = metrics.preemptions if isinstance(metrics, StreamMetrics) else 0
    options = _router_options(alternative.policy)
    why = "" if options is not None and options.preempt else " for want of KV memory"
    return f", with {count:,} preemptions of requests{why}" if count else ""


def _router_options(policy: str) -> GatewayOptions | None:
    """Return the options of a router by its name; None if it is another policy."""
    options = parse_policy(policy).options if policy.partition(":")[0] in POLICIES else None
    return options if isinstance(options, GatewayOptions) else None


def forms_in_words(found: ServersRecord) -> str:
    """Return what fleets take with prefill apart from decode, and together; empty if one form was asked about."""
    if found.split is ABSENT:
        return ""
    together, apart = (_form(found, form) for form in (found.split.together, found.split.apart))
    chosen = f"; {'apart' if found.split.chosen else 'together'} is recommended" if found.alternatives else ""
    return f"Prefill and decode on the same nodes: {together}; on nodes apart: {apart}{chosen}"


def _form(found: ServersRecord, form: FormOfFleet) -> str:
    """Return what a form of fleet takes."""
    if form.kinds is None:
        return f"no fleet found{_why_none(found, form)}"
    fleet = _by_kind(form.kinds)
    return f"{fleet} at {form.price_per_hour:g} per hour" if found.priced else fleet


def _by_kind(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _why_none(found: ServersRecord, form: FormOfFleet) -> str:
    """Return what came closest of a form of fleet, and which role has too few nodes there; empty if not known."""
    if form.closest is ABSENT:
        return "" if form.refuted is ABSENT else f" ({form.refuted})"
    loads = {} if form.loads is ABSENT else form.loads
    takes = {role: f"{role} has {load:.0%} of the work that its nodes can do" for role, load in loads.items()}
    over = " and ".join(takes[role] for role, load in loads.items() if load > 1)
    why = f"overloaded: {over}" if over else f"overloaded is neither: {' and '.join(takes.values())}"
    parts = [_by_kind(form.closest), f"{why} until the last arrival" if takes else ""]
    if form.refuted is ABSENT:
        parts[0] = f"closest is {parts[0]} with {values_in_words(found, form.reached)}"
    else:
        parts[0] += " is proved too little"
        parts.append("" if over else form.refuted)
    return f" ({'; '.join(part for part in parts if part)})"


def engines_in_words(found: ServersRecord) -> str:
    """Return how the engines of the best answer are to be set, and what that changes; empty if nothing was tried."""
    order, limits = _order_in_words(found), _limit_in_words(found)
    # That fewer requests at once are no help elsewhere is of no interest where an order is.
    tells = found.alternatives and found.alternatives[0].requests_at_once is not ABSENT
    parts = (order, _priorities_in_words(found), limits if tells or not order else "")
    return ". ".join(part for part in parts if part)


def not_tried_in_words(found: ServersRecord) -> str:
    """Return what there was no time for that may make do with less; empty if all was tried."""
    if found.not_tried is ABSENT:
        return ""
    return f"For lack of time {' and '.join(found.not_tried)} were not tried; a longer --time-limit tries them"


def _priorities_in_words(found: ServersRecord) -> str:
    """Return the numbers by which engines know who goes first; empty where all are equal, or there are no engines."""
    engines = [] if found.engines is ABSENT else found.engines
    numbers = next((each.priorities for each in engines if each.priorities is not ABSENT), None)
    if numbers is None:
        return ""
    said = ", ".join(f"{name}: {number}" for name, number in numbers.items())
    return f"Send vLLM's priority with each request (--scheduling-policy priority, the lowest goes first), {said}"


def _order_in_words(found: ServersRecord) -> str:
    """Return whose requests go first, or have nodes of their own; empty where it is first come first served."""
    name = found.alternatives[0].policy if found.alternatives else ""
    options = _router_options(name)
    if options is None or not options.urgent:
        return ""
    if not options.apart:
        preempt = " and preempt others" if options.preempt else ""
        return f"Requests of {', then '.join(options.urgent)} go first{preempt}"
    mix, alone = found.alternatives[0].size.mix, []
    counts = () if mix is ABSENT or mix is None else mix
    nodes = [group.gpu for group, count in zip(found.groups, counts, strict=False) for _ in range(count)]
    for workflow, count in zip(options.urgent, options.apart, strict=False):
        own, nodes = nodes[:count], nodes[count:]
        kinds = f" ({', '.join(dict.fromkeys(own))})" if own and len(found.groups) > 1 else ""
        alone.append(f"{count} of the nodes{kinds} {'serves' if count == 1 else 'serve'} {workflow} alone")
    return f"{', '.join(alone)}; the others share the rest"


def _limit_in_words(found: ServersRecord) -> str:
    """Return how many requests the engines are to serve at once, and what that changes; empty if it was not tried."""
    limit = found.alternatives[0].requests_at_once if found.alternatives else ABSENT
    tried = found.requests_at_once
    requests = "request" if limit == 1 else "requests"
    setting = f"Set its engines to serve at most {limit} {requests} at once (vLLM: --max-num-seqs {limit})"
    if tried is ABSENT:
        return "" if limit is ABSENT else setting
    without, at = found.policies[tried.policy].size, _sized(found, tried.size)
    if limit is not ABSENT:
        needs = "meets the level at no size simulated" if without.servers is None else f"needs {_sized(found, without)}"
        return f"{setting}: with all {tried.seats} seats {tried.policy} {needs}"
    if any(each.met for each in tried.limits):
        return ""
    numbers = ", ".join(f"{each.requests_at_once} ({values_in_words(found, each.value)})" for each in tried.limits)
    fewer = f"fewer requests at once on a node than its {tried.seats} seats ({values_in_words(found, tried.value)})"
    return f"With {fewer}, {tried.policy} misses the level on {at}, too: {numbers}"


def absences_in_words(found: ServersRecord) -> list[str]:
    """Return what failures were drawn, and when servers are away in fleets of other sizes; nothing where none are."""
    said = []
    if found.failures is not ABSENT:
        said.append(_drawn_in_words(found.failures))
    if found.away is not ABSENT:
        said.append(
            "Servers are away when the scenario says; further servers of a group repeat its pattern in turn. "
            "The lower bound is at least that of servers that are always there: being away never helps"
        )
    return said


def _drawn_in_words(drawn: FailuresDrawn) -> str:
    """Return what was simulated of failures, and how much that says."""
    rate = f"failures of {drawn.rate} (seed {drawn.seed}); lower bound and plan are without them"
    if drawn.outages is None:
        return f"No policy meets the target in every draw of {rate}"
    count, total = len(drawn.outages), sum(drawn.outages)
    if not total:
        nothing = f"No outage falls into the window in {count} draws of {rate}"
        return f"{nothing}. This says nothing of failures; a longer window or a higher rate would"
    outages = f"{total} {'outage falls' if total == 1 else 'outages fall'} into the window"
    each = f"{min(drawn.outages)} to {max(drawn.outages)} a draw"
    return f"The target is met in each of {count} draws of {rate}. {outages}, {each}; other draws may differ"


def _closest(found: ServersRecord) -> str:
    missed = [(size.closest.share_of_limit or 0.0, name) for name, size in found.policies.items() if size.closest]
    if not missed:
        return ""
    name = min(missed)[1]
    return f"No policy simulated meets the level; the closest is {name} with {reached_in_words(found, name)}"


def reached_in_words(found: ServersRecord, policy: str) -> str:
    """Return the size at which a policy came closest to the level, and what it reached there."""
    closest = found.policies[policy].closest
    if closest is None:
        return ""
    return f"{_sized(found, closest.size)} ({values_in_words(found, closest.value)})"


def values_in_words(found: ServersRecord, value: Figures) -> str:
    """Return what is reached of each level."""
    reached = [
        f"{measured(level)} {each:.4g}{' s' if level.is_time else ''}"
        for level, each in zip(found.levels, value if isinstance(value, list) else [value], strict=True)
        if each is not None
    ]
    return ", ".join(reached)


def measured(level: ServiceLevel) -> str:
    """Return what a level limits."""
    if level.measure == "lateness":
        of = f" of {level.workflow}" if level.workflow is not None else ""
        return f"share of jobs{of} within their deadline"
    return str(level).split(" <= ")[0]


def missed_in_words(found: ServersRecord) -> tuple[str, str]:
    """Return what came closest where no policy met the level, and that coarse stamps may be why one did not."""
    if found.refutation is not None and found.refutation.however_many:
        return "", ""
    return "" if found.alternatives else _closest(found), _stamps(found)


def _stamps(found: ServersRecord) -> str:
    stamps, sizes = found.coarse_stamps, [found.minimum.size, *(each.size for each in found.policies.values())]
    if stamps is None or all(size.servers is not None for size in sizes):
        return ""
    tick = {3600: "hours", 60: "minutes", 1: "seconds"}[stamps.tick_s]
    return (
        f"Arrivals are stamped in whole {tick}, and {stamps.coinciding:.0%} of them coincide, which alone can break "
        "the level; truenorth import --spread spreads them within the tick"
    )


def _sized(found: ServersRecord, size: Size) -> str:
    return describe_size(found, size) if found.priced else describe_fleet(found, size)


def _better_informed(found: ServersRecord) -> str:
    """Return what the policy needs that would do with least because it knows more; empty if that is not less."""
    best, *others = found.alternatives
    cheapest = min(others, key=lambda each: cost_of(found, each.size), default=best)
    if cost_of(found, cheapest.size) >= cost_of(found, best.size):
        return ""
    return f" ({_who(found, cheapest)} would do with {_sized(found, cheapest.size)})"


def cost_of(found: ServersRecord, size: Size) -> float:
    """Return what was to be least of a size: its price, or its servers."""
    return float((size.price_per_hour if found.priced else size.servers) or 0)


def say_less(found: ServersRecord, count: int) -> str:
    """Return so many sizes below the one found in words."""
    one, more = ("cheaper mix", "cheaper mixes") if len(found.groups) > 1 else ("smaller size", "smaller sizes")
    return f"{count} {one if count == 1 else more}"


def _floor(found: ServersRecord) -> str:
    """Return below what no plan lies, where anything is refuted."""
    if found.refutation is None or found.refutation.however_many:
        return ""
    if found.priced:
        least = found.minimum.lower_bound_price_per_hour
        if least is None:
            return ""
        beyond = up_to_counts(found, " on at most {}, or with more servers below ")
        any_counts = f"{beyond}{found.minimum.lower_bound_price_of_any_counts:g}" if beyond else ""
        return f"; no schedule meets the target below {least:g} per hour{any_counts} (proved)"
    return f"; no schedule meets the target with fewer than {found.minimum.lower_bound} (proved)"


def up_to_counts(found: ServersRecord, words: str) -> str:
    """Return words with the most servers that were looked at, where more of some group may cost less; else nothing."""
    minimum = found.minimum
    anywhere = minimum.lower_bound_price_of_any_counts
    if anywhere in (None, ABSENT) or anywhere == minimum.lower_bound_price_per_hour:
        return ""
    return words.format(_most(found))


def say_spare(found: ServersRecord, words: str) -> str:
    """Return words with how many servers may be gone; empty if none may."""
    spare = found.spare
    return words.format(f"any {spare}" if spare > 1 else "any one") if spare else ""


def say_servers(count: int) -> str:
    """Return a number of servers in words."""
    return "1 server" if count == 1 else f"{count} servers"


def strain_in_words(found: ServersRecord) -> str:
    """Return which model's figure the answer hangs on most; empty if nothing was simulated."""
    if not found.sensitivity:
        return ""
    worst, more = found.sensitivity[0], "20 % more"
    if worst.met:
        return f"The target is met with {more} run time or size of any one model; {_figure_of(worst)} matters most"
    broken = sum(not each.met for each in found.sensitivity)
    others = "" if broken == 1 else f", the first of {broken} that break it"
    return f"Most sensitive assumption: {_figure_of(worst)}; with {more} the target is missed{others}"


def assumptions(found: ServersRecord, window: AssumedWindow) -> list[str]:
    """Return what an answer rests on, a sentence each; of a document that a folder holds."""
    spare, rate, noise = found.spare, found.rate, found.noise
    held = window.resident_at_start
    return [
        *([f"Requests come {rate:g} times as fast as in the scenario."] if rate != 1 else []),
        f"It is the answer for {window.jobs:,} jobs released within {window.length_s:,.4g} s; other windows may "
        "need more (--replications).",
        *(
            [f"Policies were simulated under the noise {noise}; floor and plan are without it."]
            if noise is not None
            else []
        ),
        f"At the start {held} models are in memory." if held else "At the start no model is in memory: all are loaded.",
        f"Loads and runs of a GPU {'overlap' if window.overlap_loads else 'take turns'}; sizes, run times and "
        "prices are those of the scenario.",
        *_of_requests(found, window),
        *(f"{words}." for words in fitted_in_words(found)),
        *([f"{words}." for words in absences_in_words(found)] or [_staying(spare)]),
    ]


def _staying(spare: int) -> str:
    """Return what is assumed of servers that are never away."""
    if spare:
        return f"Up to {spare} servers are gone from the start, whichever hurt most."
    return "No server fails, comes or goes, but where a failure is asked about: it is gone from the start then."


def fitted_in_words(found: ServersRecord) -> list[str]:
    """Return what step laws were fitted to, and how far off they are; nothing if none was."""
    return [] if found.fitted is ABSENT else [str(law) for law in found.fitted]


def _of_requests(found: ServersRecord, window: AssumedWindow) -> list[str]:
    """Return what is assumed of requests of streams, and what a percentile alone allows."""
    if not window.requests:
        return []
    kv = "grows with each request's tokens, and requests are preempted where it is short" if window.kv_grows else ""
    steps = f"steps {'depend on contexts as the scenario says' if window.contexts else 'do not depend on contexts'}"
    said = [f"KV {kv or 'is reserved from start to end'}, prefill is linear in tokens, {steps}."]
    if all(level.share not in (None, 1) for level in found.levels.levels):
        said.append("A percentile alone lets the others wait for good: a level for all beside it would not.")
    return said


def untried(found: ServersRecord) -> list[str]:
    """Return what there was no time for, in a sentence; nothing where all was done."""
    left = [
        f"{size.not_simulated} {'size' if size.not_simulated == 1 else 'sizes'} of {name}"
        for name, size in found.policies.items()
        if size.not_simulated
    ]
    if found.alternatives and found.growth is None:
        left.append("more traffic")
    drawn = found.failures is not ABSENT or found.away is not ABSENT
    if found.alternatives and found.survives_failure is None and not drawn:
        left.append("one failure")
    if found.open_sizes:
        count = found.open_sizes
        left.append(f"whether a plan would do with {'one cheaper size' if count == 1 else f'{count} cheaper sizes'}")
    return [f"Not settled within the time limit: {'; '.join(left)}."] if left else []


def _figure_of(strain: StrainReached) -> str:
    return f"the {strain.figure} of {strain.model}"


def _counted(found: ServersRecord, size: Size) -> str:
    one = size.servers == 1
    if size.mix is not ABSENT:
        return f"{describe_size(found, size)} {'is' if one else 'are'}"
    return "1 server is" if one else f"{size.servers} servers are"
