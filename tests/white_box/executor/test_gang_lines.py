"""Queues for several GPUs: lines that are asked by turns decide as asking everybody in order, reservations stand."""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from dataclasses import replace

import pytest

from tests.gangs import job, servers, window
from tests.instances import instance
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.gangs import Answer, Easy, InOrder, InOrderOptions, Sjf
from truenorth.executor.policies.line import Line, Waiting
from truenorth.models import Instance, Job


class _OneByOne(InOrder):
    """Asks everybody who waits, one after the other, where policies ask lines by turns."""

    def offer(self) -> None:
        self._held = None
        early = self._reserve_after is not None
        urgency = {task: self.site.jobs[self.site.job[task]].priority for task in self.waits}
        order = {
            task: (0, 0, 0) if early and self.reserves(task) else (1, -urgency[task], self.key(task))
            for task in self.waits
        }
        for task in sorted(order, key=lambda task: (order[task], task)):
            # Where nothing was freed, who was asked before is not asked again.
            asked = self._freed or task in self._new
            answer = self._ask(task, self.kinds(task)) if asked else self._refuse(task)
            if answer is not Answer.STARTS and self._blocking:
                return


class _EasyOneByOne(_OneByOne, Easy):
    pass


class _SjfOneByOne(_OneByOne, Sjf):
    pass


def _crowd(rng: random.Random) -> tuple[Instance, Instance]:
    """Return a window in which many wait, and the same with other run times."""
    count, held, rule = rng.choice((2, 4)), rng.choice((2, 4)), rng.choice(("aligned", "any"))
    kinds = rng.choice(("A" * count, "AB" * (count // 2)))
    sizes = [size for size in (1, 2, 4, 2 * held) if size <= held or (size == 2 * held and "B" not in kinds)]
    most_urgent = rng.choice((0, 0, 2))
    told, truth = list[Job](), list[Job]()
    for _ in range(80):
        size, release_us = rng.choice(sizes), rng.randint(0, 60)
        us = {kind: rng.randint(1, 60) for kind in "AB"}
        urgency = rng.randint(0, most_urgent)
        true_us = {kind: max(1, each * rng.randint(2, 5) // 4) for kind, each in us.items()}
        told.append(replace(job(size, us, release_us), priority=urgency))
        truth.append(replace(job(size, true_us, release_us), priority=urgency))
    on = servers(count, held, rule, kinds)
    return window(*told, on=on), window(*truth, on=on)


@pytest.mark.parametrize("seed", range(12))
def test_lines_by_turns_start_whom_one_by_one_does(seed: int) -> None:
    told, truth = _crowd(random.Random(seed))
    for policy, plain in (
        ("easy", _EasyOneByOne),
        ("sjf:reserve_after=20us", lambda: _SjfOneByOne(InOrderOptions(reserve_after=20))),
        ("sjf:blocking=on", lambda: _SjfOneByOne(InOrderOptions(blocking=True))),
    ):
        for true in (None, truth):
            found = [simulate(told, of, truth=true) for of in (parse_policy(policy), plain)]
            assert found[0].start_us.tolist() == found[1].start_us.tolist(), policy
            assert found[0].place.tolist() == found[1].place.tolist(), policy


def test_who_was_passed_over_is_asked_again_when_the_place_is_taken() -> None:
    # At 10 g2, g3, g4, g5 and g6 are free; the wide one reserves the first server from 20 on. One GPU for 50 us would
    # be in its way there, the fullest server; two for 5 us are not. Then one GPU for 50 us finds the second server.
    running = job(2, 20), job(3, 10), job(1, 100)
    made = window(*running, job(4, 9, 10), job(1, 50, 10), job(2, 5, 10), job(1, 50, 10), on=servers(2, 4, "any"))
    for policy in (parse_policy("easy"), _EasyOneByOne):
        assert simulate(made, policy).start_us.tolist() == [0, 0, 0, 20, 20, 10, 10]


@pytest.mark.parametrize("seed", range(6))
def test_conservative_backfill_reserves_on_arrival_whatever_comes_later(seed: int) -> None:
    made, _ = _crowd(random.Random(seed))
    made = instance([replace(each, priority=0) for each in made.jobs], on=made.cluster)
    starts = simulate(made, parse_policy("conservative")).start_us.tolist()
    for count in (20, 50, 79):
        begun = instance(made.jobs[:count], on=made.cluster)
        assert simulate(begun, parse_policy("conservative")).start_us.tolist() == starts[:count]


def test_a_line_is_a_sorted_list() -> None:
    rng, line, plain = random.Random(1), Line(), list[Waiting]()
    for number in range(6_000):
        if plain and rng.random() < 0.4:
            line.remove(plain.pop(rng.randrange(len(plain))))
        else:
            entry = Waiting((0, rng.randint(0, 50)), number, rng.randint(1, 1_000))
            insort(plain, entry)
            line.add(entry)
        assert line.first() == (plain[0] if plain else None)
        asked, limit = Waiting((0, rng.randint(0, 50)), rng.randint(0, number), 0), rng.choice((None, 5, 500))
        behind = (each for each in plain[bisect_right(plain, asked) :] if limit is None or each.run_us <= limit)
        assert line.after(asked, limit) == next(behind, None)
