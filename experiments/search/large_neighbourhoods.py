"""Large neighbourhoods beside annealing: half of the time each against annealing alone, and each kind left out."""

from __future__ import annotations

import time

from models import Instance, Objective
from solvers.result import Search
from solvers.search import annealing, lns

SEEDS = (0, 1)


def beside_annealing(name: str, instance: Instance, objective: Objective, seconds: float) -> None:
    """Print what annealing alone finds, and what large neighbourhoods make of its plan after half the time."""
    for seed in SEEDS:
        alone = _annealed(instance, objective, seconds, seed)
        half = _annealed(instance, objective, seconds / 2, seed)
        print(f"{name}, seed {seed}: annealing {_value(alone)}", flush=True)
        _repaired(f"{name}, seed {seed}: {_value(half)}, then", half, seconds / 2, seed, lns.Parameters())


def left_out(name: str, instance: Instance, objective: Objective, seconds: float) -> None:
    """Print what large neighbourhoods make of a plan annealed for a tenth of the time, each kind left out in turn."""
    start = _annealed(instance, objective, seconds / 10, 0)
    kinds = lns.Parameters().neighbourhoods
    for skipped in (None, *kinds):
        kept = tuple(kind for kind in kinds if kind is not skipped)
        label = "all" if skipped is None else f"without {skipped.__name__}"
        _repaired(f"{name}, {label}: {_value(start)} to", start, seconds, 0, lns.Parameters(neighbourhoods=kept))


def _annealed(instance: Instance, objective: Objective, seconds: float, seed: int) -> Search:
    running = Search(instance, objective, seconds)
    annealing.improve(running, seed)
    return running


def _repaired(label: str, start: Search, seconds: float, seed: int, parameters: lns.Parameters) -> None:
    """Print what large neighbourhoods make of a plan, and what each of them gained, in millionths."""
    running = Search(start.instance, start.objective, seconds)
    if start.timeline is not None:
        running.offer(start.timeline)
    before = time.process_time()
    records = lns.improve(running, seed, 1, parameters=parameters)
    took = time.process_time() - before
    gains = ", ".join(
        f"{kind.__name__} {record.gain * 1e6:.0f} in {record.tries} tries of {record.seconds:.1f} s"
        for kind, record in zip(parameters.neighbourhoods, records, strict=False)
    )
    print(f"{label} {_value(running)} ({took:.0f} s of processor time; {gains})", flush=True)


def _value(running: Search) -> str:
    return "none" if running.value is None else f"{float(running.value):.5f}"
