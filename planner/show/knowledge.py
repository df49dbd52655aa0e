"""What is said of what a policy knows of run times: a size that takes more than a gateway knows is no order."""

from __future__ import annotations

from executor import Knows
from planner.answers.uncertain.spec import MEAN, parse_uncertainty

_WORDS = {
    Knows.NOTHING: "which knows no run times",
    Knows.WAITS: "which knows how long queues take",
    Knows.RUN_TIMES: "which knows every run time exactly",
    Knows.FUTURE: "which knows the future",
}


def knowledge_in_words(knows: str, noise: str | None) -> str:
    """Return what a policy knows, as a clause; `noise` is under what it was simulated.

    >>> knowledge_in_words("waits", None), knowledge_in_words("run times", "told=mean")
    ('which knows how long queues take', 'told mean run times only')
    """
    asked, known = parse_uncertainty(noise), Knows(knows)
    if noise is None or (known is Knows.NOTHING and asked.keeps_truth):  # what is told changes nothing
        return _WORDS[known]
    if asked.told_means and known in (Knows.WAITS, Knows.RUN_TIMES) and asked.noise is None:
        return f"told {MEAN} run times only"
    words = _WORDS[known].removesuffix(" exactly") if not asked.tells_exactly else _WORDS[known]
    return f"{words}, under {noise}"
