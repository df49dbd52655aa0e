"""Draw mean slowdown over what is known of the future, from the written results."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt

from experiments.clairvoyance_2026_11_21.__main__ import HERE, LOOKAHEADS, RECEDING, Row
from experiments.resumed import read

REFERENCES = {"compass": "--", "srpt": ":", "plan, 30 s": "-."}
"""Policies drawn as level lines."""


def main() -> int:
    """Write look_ahead.png beside this file."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
    for rate, axes in zip((2, 3, 4), panels, strict=True):
        rows = read(HERE / f"results_300_jobs_{rate}_per_s.csv", Row)
        slowdown = {row.policy: row.mean_slowdown for row in rows}
        known = [slowdown[f"{RECEDING}{name}"] for name in LOOKAHEADS]
        axes.plot(list(LOOKAHEADS), known, marker="o", color="black", label="receding")
        for policy, style in REFERENCES.items():
            axes.axhline(slowdown[policy], linestyle=style, color="grey", label=f"{policy}: {slowdown[policy]:.2f}")
        axes.set(title=f"{rate} jobs/s", xlabel="look-ahead", ylim=(1, None))
        axes.legend(fontsize="x-small")
    panels[0].set_ylabel("mean slowdown")
    figure.savefig(HERE / "look_ahead.png", dpi=110)
    return 0


if __name__ == "__main__":
    sys.exit(main())
