"""The page of the library: what is known of every instance, class by class, and what policies make of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING

from experiments.bench import canvas, markdown, shown
from experiments.library.store import Found, Known
from truenorth.planner.show.styles import styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "library.png"
_SHOWN = styles(["compass", "srpt", "ahead", "jit", "lru"])
_NO_GAP = 1e-5
"""Where a logarithmic axis shows what is closed."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The objective of an online policy on an instance; None where it cannot serve it."""

    instance: str
    policy: str
    value: float | None


def page(known: Sequence[Known], results: Sequence[PolicyResult]) -> str:
    """Return the page."""
    certified = [each for each in known if each.closed]
    by_word = [each for each in known if each.closed_uncertified]
    still = [each.gap for each in known if not each.closed and each.gap is not None]
    others, mean = len(known) - len(certified) - len(by_word), fmean(still) if still else None
    return "\n".join(
        [
            "# Best known plans and bounds",
            "",
            "Written by `python -m experiments library`, which checks every plan and certificate again. What the files",
            "are, and how to add to them, is in the [README](README.md).",
            "",
            f"**{len(known)} instances: {len(certified)} closed by certificates, {len(by_word)} by a solver's word,",
            f"{others} open.** Mean gap to the certificate where it does not close: {_percent(mean)}.",
            "",
            classes(known),
            "",
            f"![gaps and policies]({PICTURE})",
            "",
            *_policies(known, results),
            instances(known),
            "",
        ]
    )


def classes(known: Sequence[Known]) -> str:
    """Return the table of the classes; gaps are those of certificates."""
    rows = []
    for sort, members in _by_class(known).items():
        gaps = [each.gap for each in members if not each.closed and each.gap is not None]
        rows.append([
            sort, str(len(members)), str(sum(each.closed for each in members)),
            str(sum(each.closed_uncertified for each in members)), _percent(fmean(gaps) if gaps else None),
        ])  # fmt: skip
    heads = ["class", "instances", "closed, certified", "closed by a solver's word", "mean gap of the others"]
    return markdown(heads, rows, " --: |")


def instances(known: Sequence[Known]) -> str:
    """Return the table of all instances."""
    heads = ["instance", "what it is", "tasks", "objective", "best plan", "bound", "gap", "", "method"]
    heads += ["to the stranger's verifier", "literature", "plan by", "bound by"]
    return "\n".join(["## Instance by instance", "", markdown(heads, map(_row, known), " --- |")])


def _row(each: Known) -> list[str]:
    value, bound = each.shown
    state = "closed" if each.closed else "closed, not certified" if each.closed_uncertified else "open"
    words = each.entry.words.replace("|", "\\|")
    # Where it knows the method it computes the same.
    its = "" if each.strangers == bound else shown(each.strangers, ".7g")
    figures = shown(value, ".7g"), shown(bound, ".7g"), _percent(each.gap), state, each.method, its, _literature(each)
    what = f"`{each.entry.name}`", words, str(each.entry.tasks), str(each.objective)
    return [*what, *figures, _finder(each.planned), _finder(each.proved)]


def _literature(each: Known) -> str:
    if each.entry.known is None:
        return ""
    low, high = each.entry.known
    return f"{high:.7g}" if low == high else f"{low:.7g} to {high:.7g}"


def _finder(found: Found | None) -> str:
    """Return who found something, in a cell."""
    if found is None:
        return ""
    seed = None if found.seed is None else f"seed {found.seed}"
    seconds = f"{found.seconds:g} s" if found.seconds else None
    said = (found.by, found.commit, seed, seconds, found.machine, found.date)
    return ", ".join(word for word in said if word)


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.2f} %" if ratio > 0 else "0"


def _by_class(known: Sequence[Known]) -> Mapping[str, list[Known]]:
    members = defaultdict[str, list[Known]](list)
    for each in known:
        members[each.entry.sort].append(each)
    return members


def ratios(known: Sequence[Known], results: Sequence[PolicyResult]) -> Mapping[str, Mapping[str, float]]:
    """Return by policy and class the geometric mean of its objective over the best known plan's.

    Instances whose best value is 0 are left out, and classes of which a policy served none.
    """
    best = {each.entry.name: (each.entry.sort, each.shown[0]) for each in known}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in results:
        sort, value = best.get(row.instance, ("", None))
        if value and row.value:
            found[row.policy][sort].append(row.value / value)
    return {policy: {sort: geometric_mean(each) for sort, each in by.items()} for policy, by in found.items()}


def _policies(known: Sequence[Known], results: Sequence[PolicyResult]) -> Iterator[str]:
    """Yield the table of policies, the nearest first."""
    found, sorts = ratios(known, results), list(_by_class(known))
    if not found:
        return
    ranked = sorted(found, key=lambda policy: geometric_mean(list(found[policy].values())))
    rows = [[f"`{policy}`", *(shown(found[policy].get(sort), ".3g") for sort in sorts)] for policy in ranked]
    yield "## Policies over best known plans"
    yield ""
    yield "Geometric means of the objective over that of the best plan, which knows the future."
    yield from ["", markdown(["policy", *sorts], rows, " --: |"), ""]


def figure(known: Sequence[Known], results: Sequence[PolicyResult]) -> Figure:
    """Draw the gaps by class, and the policies over the best known plans."""
    made, groups, over = canvas(11, 5), _by_class(known), ratios(known, results)
    left, right = made.subplots(1, 2, sharey=True)
    for place, members in enumerate(groups.values()):
        gaps = [100 * max(each.gap, _NO_GAP) for each in members if each.gap is not None]
        left.plot(gaps, [place] * len(gaps), "o", color="#4477AA", alpha=0.5)
    left.set(xscale="log", xlabel="gap to the certificate in % (at the left edge: closed)")
    left.set_yticks(range(len(groups)), list(groups))
    for policy, (colour, _) in _SHOWN.items():
        found = over.get(policy, {})
        places = [place for place, sort in enumerate(groups) if sort in found]
        right.plot([found[sort] for sort in groups if sort in found], places, "s", color=colour, label=policy)
    right.set(xscale="log", xlabel="policy over best known plan")
    right.axvline(1, color="black", linewidth=0.8)
    right.legend()
    return made
