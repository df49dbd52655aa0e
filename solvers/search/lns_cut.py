"""Part of a plan as an instance of its own, and a new timeline of the part spliced back into the plan.

What lies before the part is given, what lies after it is not disturbed: see `lns_part` for the borders. Residencies
that a border cuts through are joined again, and the whole is brought into normal form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from models.formulations.cp_sat import Formulation
from models.formulations.normal_form import Chain, normal_form
from models.formulations.windows import Limits
from models.instance import Instance
from models.timeline import Placement, Residency, Timeline
from solvers.search.lns_part import (
    Borders,
    Standing,
    Stay,
    handover_gpu,
    handovers,
    limits_of,
    part_instance,
    stays_of,
    sub_jobs,
)


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a plan as an instance of its own.

    Parameters
    ----------
    plan
        The plan that it is cut from.
    part
        The instance; its times are those of the plan.
    tasks
        Per task of the part: the one of the whole; -1 - g for the handover of its GPU g.
    jobs
        Per job of the part: the one of the whole; -1 for a handover.
    gpus
        Per GPU of the part: the one of the whole.
    limits
        When and where the tasks of the part may run.
    borders
        Of the part.
    stays
        The residencies on its GPUs.
    counts
        Per job: whether the part decides when it completes.
    """

    plan: Standing
    part: Instance
    tasks: tuple[int, ...]
    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    limits: Limits
    borders: Borders
    stays: tuple[Stay, ...]
    counts: tuple[bool, ...]

    def known(self) -> Timeline:
        """Return what the plan does in the part."""
        timeline, index = self.plan.timeline, {gpu: i for i, gpu in enumerate(self.gpus)}
        placements = []
        for here, task in enumerate(self.tasks):
            if task < 0:
                start = int(self.borders.handover_us[handover_gpu(task)])
                placements.append(Placement(here, index[handover_gpu(task)], start, start + 1))
            else:
                start, end = int(timeline.start_us[task]), int(timeline.end_us[task])
                placements.append(Placement(here, index[int(timeline.gpu[task])], start, end))
        chains = []
        for stay in self.stays:
            until = int(self.borders.handover_us[stay.residency.gpu]) + 1 if stay.owed else stay.inside_us
            if until:
                begin = 0 if stay.found else stay.residency.load_start_us
                slots = _equal_slots(self.plan.instance, stay.residency)
                initial = stay.found or stay.residency.initial
                chains.append(Chain(stay.residency.model, index[stay.residency.gpu], begin, initial, until, slots))
        return normal_form(self.part, placements, chains)

    def splice(self, timeline: Timeline) -> Timeline:
        """Return the plan with a timeline of the part in place of what it did there."""
        inside = set(self.tasks)
        placements = [placement for placement in self.plan.timeline.placements if placement.task not in inside]
        placements += [
            Placement(self.tasks[p.task], self.gpus[p.gpu], p.start_us, p.end_us)
            for p in timeline.placements
            if self.tasks[p.task] >= 0
        ]
        return normal_form(self.plan.instance, placements, [*self._chains(timeline), *self._chains_elsewhere()])

    def _chains(self, timeline: Timeline) -> Iterator[Chain]:
        """Yield the residencies on the part's GPUs: those of its timeline, joined to what lies before and after."""
        found = {(s.residency.model, s.residency.gpu): s for s in self.stays if s.found}
        owed = {(s.residency.model, s.residency.gpu): s for s in self.stays if s.owed}
        for residency, tasks in Standing.of(self.part, timeline).served:
            gpu = self.gpus[residency.gpu]
            place = residency.model, gpu
            begin = replace(residency, gpu=gpu)
            if residency.initial and place in found:
                begin = found.pop(place).residency
            ends = [int(timeline.end_us[task]) for task in tasks if self.tasks[task] >= 0]
            if len(ends) < len(tasks):
                ends.append(owed[place].after_us)
            yield _chain(self.plan.instance, begin, max(ends))
        for stay in self.stays:
            place = stay.residency.model, stay.residency.gpu
            if stay.before_us and (not stay.found or place in found):
                yield _chain(self.plan.instance, stay.residency, stay.before_us)
            elif stay.after_us and not stay.owed:
                yield _chain(self.plan.instance, stay.residency, stay.after_us)

    def _chains_elsewhere(self) -> Iterator[Chain]:
        """Yield the residencies on all other GPUs."""
        for residency, tasks in self.plan.served:
            if residency.gpu not in self.gpus:
                yield _chain(self.plan.instance, residency, int(self.plan.timeline.end_us[list(tasks)].max()))

    def constrain(self, formulation: Formulation) -> None:
        """Keep residencies inside the borders.

        No load starts too early, what is still being loaded at the border is ready only later, and what is owed is
        handed over in a slot of the size that it had: m_ug => q_u >= loads from g;  i_ug => s_t >= ready_mg;
        y_ugk = 1 for handovers.
        """
        model, v, needs = formulation.model, formulation.variables, formulation.choices.needs
        for (need, g), miss in v.miss.items():
            first = int(self.borders.loads_from_us[self.gpus[g]])
            model.add(v.hold[need] >= first).with_name(f"loads_from[{need},{g}]").only_enforce_if(miss)
        ready = {(s.residency.model, s.residency.gpu): s.residency.ready_us for s in self.stays if s.found}
        for (need, g), initial in v.initial.items():
            task, wanted = needs[need]
            first = ready.get((wanted, self.gpus[g]), 0)
            model.add(v.start[task] >= first).with_name(f"ready_from[{need},{g}]").only_enforce_if(initial)
        slots = {(s.residency.model, s.residency.gpu): s.residency.slot for s in self.stays if s.owed}
        for (need, g, room), place in v.place.items():
            task, wanted = needs[need]
            if self.tasks[task] < 0 and room == formulation.choices.room_of_slot(g, slots[wanted, self.gpus[g]]):
                model.add(place == 1).with_name(f"handed_over_in[{need},{g},{room}]")


def cut_out(plan: Standing, free: Mapping[int, tuple[int, ...]], margin_us: int) -> Cut:
    """Return the part of a plan around its free tasks.

    Parameters
    ----------
    free
        Per free task: the GPUs that it may take.
    margin_us
        How much longer than the free tasks the part runs, before and after them.
    """
    timeline = plan.timeline
    members = np.fromiter(free, np.int64)
    begin = int(timeline.start_us[members].min()) - margin_us
    end = int(timeline.end_us[members].max()) + margin_us
    gpus = tuple(sorted({gpu for where in free.values() for gpu in where}))
    inside = (timeline.start_us < end) & (timeline.end_us > begin) & np.isin(timeline.gpu, gpus)
    borders = Borders.of(plan, begin, end)
    stays = tuple(stays_of(plan, borders, inside, gpus))
    jobs = sorted(
        [*sub_jobs(plan.instance, inside), *handovers(plan.instance, borders, stays, gpus)],
        key=lambda entry: entry[0].release_us,
    )
    tasks = tuple(task for _, _, tasks in jobs for task in tasks)
    part = part_instance(plan.instance, tuple(job for job, _, _ in jobs), gpus, borders, stays)
    limits, counts = limits_of(plan, part, tasks, gpus, free, borders)
    return Cut(plan, part, tasks, tuple(index for _, index, _ in jobs), gpus, limits, borders, stays, counts)


def _chain(instance: Instance, residency: Residency, until_us: int) -> Chain:
    slots = _equal_slots(instance, residency)
    return Chain(residency.model, residency.gpu, residency.load_start_us, residency.initial, until_us, slots)


def _equal_slots(instance: Instance, residency: Residency) -> tuple[int, ...]:
    """Return the slots as large as that of a residency; empty if memory is shared by bytes."""
    slots = instance.cluster.gpus[residency.gpu].slots
    if residency.slot is None:
        return ()
    return tuple(index for index, size in enumerate(slots) if size == slots[residency.slot])
