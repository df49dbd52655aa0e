"""What is said of an answer, on a terminal and on a page: optimum and policies side by side, and what forces the size.

All of it is read from the document of ``servers --json``, which is what a folder holds. Of priced groups only the
price has a bound worth saying: one dear server may do where many cheap ones do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from executor import Knows
from models.slo import ServiceLevels
from planner.answers.replicated_servers import BOUND, CountSpread, Replications
from planner.answers.servers.answer import ServersAnswer
from planner.show.knowledge import knowledge_in_words
from planner.show.rounded import rounded_in_words

NOT_MONOTONE = (
    "Policies are not monotone in the number of servers: where a size counts as simulated, so was every smaller one "
    "that is not refuted. The plan knows the future, the online policies do not."
)

Found = Mapping[str, Any]
"""The document of ``servers --json``."""


def levels(found: Found) -> ServiceLevels:
    """Return the service levels that were asked for."""
    asked = found["slo"]
    return ServiceLevels.parse(*([asked] if isinstance(asked, str) else asked))


def priced(found: Found) -> bool:
    """Say whether the question was for the cheapest mix of priced groups."""
    return "mix" in found["minimum"]


def describe_size(found: Found, size: Mapping[str, Any]) -> str:
    """Return a number of servers, or a mix by its GPU kinds with its price; a dash where there is none."""
    if size["servers"] is None:
        return "-"
    if not size["servers"]:
        return "no server"
    if not priced(found):
        return str(size["servers"])
    return f"{describe_mix(found, size['mix'])} at {size['price_per_hour']:g} per hour"


def describe_mix(found: Found, mix: list[int]) -> str:
    """Return how many servers of which GPU kind; groups of one kind are told apart by their place in the file."""
    names = [
        group["gpu"] if group["gpus_per_server"] == 1 else f"{group['gpus_per_server']}x{group['gpu']}"
        for group in found["groups"]
    ]
    labels = [
        name if names.count(name) == 1 else f"{name} (group {number})" for number, name in enumerate(names, start=1)
    ]
    return " + ".join(f"{count} {label}" for count, label in zip(mix, labels, strict=True) if count)


def answer_in_words(found: Found) -> str:
    """Return what is said of an answer, in one paragraph."""
    return " ".join(sentences(found))


def sentences(found: Found) -> list[str]:
    """Return what can be deployed and its floor, what it hangs on, how sure the least size is, and what forces it."""
    minimum, refutation = found["minimum"], found["refutation"]
    size = _counted(found, minimum)
    enough = f"enough{_spare(found, ' with {} of them gone')}"
    if minimum["servers"] is None:
        said = _nothing_found(found)
    elif minimum["proved"]:
        cheaper = f"no cheaper size{up_to_counts(found, ' of at most {}')}"
        said = f"With the future known, {size} {enough}, and {cheaper} is, which is proved"
    elif refutation is None:
        said = f"With the future known, {size} {enough}; whether less is enough is open"
    else:
        said = f"With the future known, {size} {enough}; {_too_little(found)}, and what lies between is open"
    parts = [
        deployable_in_words(found),
        strain_in_words(found),
        said,
        "" if refutation is None else refutation["forces"],
    ]
    return [f"{part}." for part in parts if part]


def _nothing_found(found: Found) -> str:
    slo, upto = levels(found), describe_size(found, found["largest"])
    if found["refutation"] is not None and found["refutation"]["however_many"]:
        return f"No number of servers meets {slo}, which is proved"
    servers = "" if priced(found) else " servers"
    if not found["open_sizes"]:
        return f"No plan on up to {upto}{servers} meets {slo}, which is proved"
    said = f"No plan within {slo} was found on up to {upto}{servers}"
    return said if found["refutation"] is None else f"{said}; {_too_little(found)}"


def _too_little(found: Found) -> str:
    """Return what the bound says, where something is refuted."""
    if priced(found):
        no_mix = f"no mix{up_to_counts(found, ' of at most {}')}"
        return f"below {found['minimum']['lower_bound_price_per_hour']:g} per hour {no_mix} is, which is proved"
    return f"fewer than {found['minimum']['lower_bound']} are proved too few"


def deployable_in_words(found: Found) -> str:
    """Return the policy that meets the level at the least size, the floor below it, and how much more traffic it takes.

    It can be deployed without knowing the future. Empty if no policy met the level.
    """
    if not found["alternatives"]:
        return ""
    best = found["alternatives"][0]
    untried = found["policies"][best["policy"]]["not_simulated"]
    size = _sized(found, best)
    needs = f"needs at most {size} ({_left_out(found, untried)})" if untried else f"needs {size}"
    spare = _spare(found, ", {} of which may be gone")
    said = f"{_who(found, best)} {needs}{spare}{_better_informed(found)}{_floor(found)}"
    growth = found["growth"]
    if growth is None or growth["fails"] is None:
        return said if growth is None else f"{said}. It takes {growth['holds']:.4g} times the traffic, too"
    if growth["holds"] == 1:
        return f"{said}. With {growth['fails']:.4g} times the traffic it does not meet the level there"
    return f"{said}. It takes {growth['holds']:.4g} times the traffic there, but not {growth['fails']:.4g} times"


def _who(found: Found, alternative: Mapping[str, Any]) -> str:
    """Return a policy with what it knows."""
    return f"{alternative['policy']}, {knowledge_in_words(alternative['knows'], found['noise'])},"


def _sized(found: Found, size: Mapping[str, Any]) -> str:
    return describe_size(found, size) if priced(found) else say_servers(size["servers"])


def _better_informed(found: Found) -> str:
    """Return what the policy needs that would do with least because it knows more; empty if that is not less."""
    best, *others = found["alternatives"]
    cheapest = min(others, key=lambda each: _cost(found, each), default=best)
    if _cost(found, cheapest) >= _cost(found, best):
        return ""
    return f" ({_who(found, cheapest)} would do with {_sized(found, cheapest)})"


def _cost(found: Found, size: Mapping[str, Any]) -> float:
    return float(size["price_per_hour"] if priced(found) else size["servers"])


def say_less(found: Found, count: int) -> str:
    """Return so many sizes below the one found in words."""
    one, more = ("cheaper mix", "cheaper mixes") if len(found["groups"]) > 1 else ("smaller size", "smaller sizes")
    return f"{count} {one if count == 1 else more}"


def _left_out(found: Found, untried: int) -> str:
    """Return how many sizes below the one found were left out."""
    return f"{say_less(found, untried)} {'was' if untried == 1 else 'were'} not tried for lack of time"


def _floor(found: Found) -> str:
    """Return below what no plan lies, where anything is refuted."""
    if found["refutation"] is None or found["refutation"]["however_many"]:
        return ""
    if priced(found):
        least = found["minimum"]["lower_bound_price_per_hour"]
        said = "" if least is None else f"; no plan, however clever, costs less than {least:g}"
        beyond = up_to_counts(found, " on at most {}, or on more less than ")
        return f"{said}{beyond}{found['minimum']['lower_bound_price_of_any_counts']:g}" if said and beyond else said
    return f"; no plan, however clever, needs fewer than {found['minimum']['lower_bound']}"


def up_to_counts(found: Found, words: str) -> str:
    """Return words with the most servers that were looked at, where more of some group may cost less; else nothing."""
    minimum = found["minimum"]
    anywhere = minimum.get("lower_bound_price_of_any_counts")
    if anywhere is None or anywhere == minimum["lower_bound_price_per_hour"]:
        return ""
    return words.format(describe_mix(found, found["largest"]["mix"]))


def _spare(found: Found, words: str) -> str:
    """Return words with how many servers may be gone; empty if none may."""
    spare = found["spare"]
    return words.format(f"any {spare}" if spare > 1 else "any one") if spare else ""


def say_servers(count: int) -> str:
    """Return a number of servers in words."""
    return "1 server" if count == 1 else f"{count} servers"


STRAINS_TITLE = "What 20 % more of one model does to it"
STRAINS = ("model", "20 % more", "reached", "level", "of the limit")


def strains(found: Found) -> list[list[str]]:
    """Return a row for every model and figure of it that the best answer was simulated with, the worst first."""
    made = []
    for each in found["sensitivity"]:
        values = each["value"] if isinstance(each["value"], list) else [each["value"]]
        reached = ", ".join("-" if value is None else f"{value:.4g}" for value in values)
        share = "-" if each["share_of_limit"] is None else f"{each['share_of_limit']:.1%}"
        level = "met" if each["met"] else "cannot be served" if each["value"] is None else "missed"
        made.append([each["model"], each["figure"], reached, level, share])
    return made


def strain_in_words(found: Found) -> str:
    """Return which model's figure the answer hangs on most; empty if nothing was simulated."""
    if not found["sensitivity"]:
        return ""
    worst, more = found["sensitivity"][0], "20 % more"
    if worst["met"]:
        return f"{more} run time or size of any one model leaves the level met; {_figure_of(worst)} matters most"
    broken = sum(not each["met"] for each in found["sensitivity"])
    others = "" if broken == 1 else f", the first of {broken} that break it"
    return f"It hangs on {_figure_of(worst)}: with {more} the level is missed{others}"


def assumptions(found: Found) -> list[str]:
    """Return what an answer rests on, a sentence each; of a document that a folder holds."""
    window, spare, rate = found["scenario"], found["spare"], found.get("rate", 1)
    held = window["resident_at_start"]
    return [
        *([f"Requests come {rate:g} times as fast as in the scenario."] if rate != 1 else []),
        f"It is the answer for {window['jobs']:,} jobs released within {window['length_s']:,.4g} s; other windows may "
        "need more (--replications).",
        *_told(found),
        f"At the start {held} models are in memory." if held else "At the start no model is in memory: all are loaded.",
        f"Loads and runs of a GPU {'overlap' if window['overlap_loads'] else 'take turns'}; sizes, run times and "
        "prices are those of the scenario.",
        f"Up to {spare} servers are gone from the start, whichever hurt most."
        if spare
        else "No server fails, comes or goes.",
    ]


def untried(found: Found) -> list[str]:
    """Return what there was no time for, in a sentence; nothing where all was done."""
    left = [
        f"{size['not_simulated']} {'size' if size['not_simulated'] == 1 else 'sizes'} of {name}"
        for name, size in found["policies"].items()
        if size["not_simulated"]
    ]
    if found["alternatives"] and found["growth"] is None:
        left.append("more traffic")
    if found["open_sizes"]:
        count = found["open_sizes"]
        left.append(f"whether a plan would do with {'one cheaper size' if count == 1 else f'{count} cheaper sizes'}")
    return [f"Not settled within the time limit: {'; '.join(left)}."] if left else []


def _told(found: Found) -> list[str]:
    """Return under what policies were simulated, if not as the scenario stands."""
    noise = found["noise"]
    return [] if noise is None else [f"Policies were simulated under the noise {noise}; floor and plan are without it."]


def _figure_of(strain: Mapping[str, Any]) -> str:
    return f"the {strain['figure']} of {strain['model']}"


ALTERNATIVES_TITLE = "Simulated within 10 % of the best price of those that know as much"
ALTERNATIVES = (
    "policy",
    "knows",
    "size",
    "mean latency in s",
    "p95",
    "p99",
    "mean slowdown",
    "hit rate",
    "busy",
    "work in GPU-s",
)


def alternatives(found: Found) -> list[list[str]]:
    """Return a row for each policy and size near the best price, with its metrics."""
    made = []
    for each in found["alternatives"]:
        metrics = each["metrics"]
        figures = [metrics[f"{name}_latency_s"] for name in ("mean", "p95", "p99")]
        made.append(
            [
                each["policy"],
                each["knows"],
                describe_size(found, each),
                *(f"{figure:.4g}" for figure in (*figures, metrics["mean_slowdown"])),
                "-" if metrics["hit_rate"] is None else f"{metrics['hit_rate']:.1%}",
                f"{metrics['compute_busy']:.0%}",
                f"{each['work']['gpu_seconds']:.4g} of {each['work']['offered_gpu_seconds']:.4g}",
            ]
        )
    return made


def _counted(found: Found, size: Mapping[str, Any]) -> str:
    one = size["servers"] == 1
    if priced(found):
        return f"{describe_size(found, size)} {'is' if one else 'are'}"
    return "1 server is" if one else f"{size['servers']} servers are"


def rows(found: Found) -> list[tuple[str, str, str, str]]:
    """Return a row for the plan and one per policy: who, what it knows of run times, what size, how that is known."""
    plan = ("plan (offline optimum)", str(Knows.FUTURE), describe_size(found, found["minimum"]), _proof(found))
    return [
        plan,
        *(
            (name, size["knows"], describe_size(found, size), _trial(found, size))
            for name, size in found["policies"].items()
        ),
    ]


def _proof(found: Found) -> str:
    minimum, refutation = found["minimum"], found["refutation"]
    if minimum["proved"]:
        cheaper = f"every cheaper one{up_to_counts(found, ' of at most {}')} refuted"
        return f"proved: a plan at this size, {cheaper}" if refutation else "a plan; the smallest"
    if refutation is not None and refutation["however_many"]:
        return "refuted, however many servers there are"
    if not found["open_sizes"]:
        return f"refuted up to {describe_size(found, found['largest'])}"
    least = minimum["lower_bound"]
    if priced(found):
        least = f"{minimum['lower_bound_price_per_hour']:g} per hour"
    if minimum["servers"] is None:
        return "no plan found" if refutation is None else f"at least {least}; no plan found"
    return "a plan; nothing is refuted" if refutation is None else f"a plan; the least lies between {least} and this"


def _trial(found: Found, size: Mapping[str, Any]) -> str:
    """Return how the size of a policy is known: by simulation, as far as there was time."""
    tried, left_out = len(size["reached"]), size["not_simulated"]
    time_up = f"no time for {left_out} {'size' if left_out == 1 else 'sizes'}"
    if size["servers"] is not None:
        return f"simulated; {time_up} below" if left_out else "simulated"
    if not tried:
        return "not simulated: no time left" if left_out else "not simulated: every size is refuted"
    last = describe_size(found, size["reached"][-1])
    if not left_out:
        return f"misses the level at every size up to {last}"
    sizes = "the one size" if tried == 1 else f"the {tried} sizes"
    return f"misses the level at {sizes} simulated ({'' if tried == 1 else 'up to '}{last}); {time_up}"


def view(answer: ServersAnswer) -> Group:
    """Return the table with the sentences that belong to it."""
    found = answer.as_dict()
    name = answer.sizes.scenario.name
    faster = "" if answer.rate == 1 else f" at {found['rate']:g} times the traffic"
    title = f"{name}: servers for {answer.levels}{faster}{_spare(found, ', with {} gone')}"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("")
    table.add_column("knows")
    table.add_column("cheapest mix" if priced(found) else "servers", justify="right")
    table.add_column("how it is known")
    for row in rows(found):
        table.add_row(*(Text(cell) for cell in row))
    rounded = rounded_in_words(found["rounded_up"])
    said = [f"{words}." for words in (deployable_in_words(found), strain_in_words(found), rounded) if words]
    parts: list[Table | Text] = [Text(" ".join(said))] if said else []
    parts.append(table)
    if len(found["alternatives"]) > 1:
        parts.append(_table(ALTERNATIVES_TITLE, ALTERNATIVES, alternatives(found)))
    done = found["refutation"]
    if done is not None:
        again = "can be computed again (truenorth verify)" if done["recomputable"] else "not re-computable"
        what = "any number of servers" if done["however_many"] else describe_size(found, done)
        left = "with only " if found["spare"] and not done["however_many"] else ""
        parts.append(
            Text(f"Why not {left}{what}{' left' if left else ''} ({done['method']}, {again}): {done['forces']}")
        )
    if answer.policies:
        parts.append(Text(NOT_MONOTONE, style="italic"))
    return Group(*parts)


def _table(title: str, columns: Sequence[str], filled: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first three columns are words."""
    table = Table(title=Text(title), title_justify="left")
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position < 3 else "right")
    for row in filled:
        table.add_row(*map(Text, row))
    return table


def replications_view(made: Replications) -> Group:
    """Return the spread over all replications, what to count on, and the window that needs most."""
    unit = "price per hour" if made.priced else "servers"
    count, sure = len(made.replications), f"{float(made.confidence):.4g}"
    title = f"{made.scenario.name}: {unit} for {made.levels}, over {count} {made.what}"
    table = Table(title=Text(title), title_justify="left")
    for name in ("", "least", "median", "most", "found in", f"enough for the next ({float(made.confidence):.3g})"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_column("needs most")
    for who, spread in made.spread.items():
        hardest = "-" if spread.hardest is None or who == BOUND else made.window(spread.hardest)
        table.add_row(Text(who), *_spread(spread, count, who != BOUND), Text(hardest))
    note = (
        f"'Enough' serves the next window, too, with a probability of at least {sure}, if windows might as well have "
        f"come in another order; it takes at least {fewest(made.confidence)} replications."
    )
    return Group(table, Text(note, style="italic"))


def fewest(confidence: Fraction) -> int:
    """Return how many replications a recommendation takes.

    >>> fewest(Fraction(9, 10)), fewest(Fraction(1, 2))
    (9, 1)
    """
    return ceil(confidence / (1 - confidence))


def _spread(spread: CountSpread, total: int, recommended: bool) -> list[str]:
    least, middle, most, enough = (
        "-" if figure is None else f"{figure:g}" for figure in (spread.least, spread.median, spread.most, spread.enough)
    )
    return [least, middle, most, f"{spread.found} of {total}", enough if recommended else "-"]
