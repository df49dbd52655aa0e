"""A job run alone, one task after the other, with nothing in memory but the models that a task needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from torch import Tensor

from truenorth.executor.devices.decoding import Answer, Read
from truenorth.executor.devices.station import Seating, Station, StationWork
from truenorth.models import Instance, Tokens


def run_job_alone(
    instance: Instance,
    seatings: Mapping[tuple[int, int], Seating],
    station: Station,
    job: int,
    wanted: Collection[int],
    given: Mapping[int, Tensor],
) -> dict[int, Tensor]:
    """Return what tasks of a job put out.

    Parameters
    ----------
    seatings
        By template of a request and GPU class: how its stream class is served.
    wanted
        The tasks; whatever they need is computed, too.
    given
        What successors get in place of what is put out here, by task.
    """
    workflow, first = instance.jobs[job].workflow, instance.tasks_of(job).start
    outputs, needed = dict[int, Tensor](), set(wanted)
    for position in reversed(workflow.topological):
        if first + position in needed:
            needed.update(first + workflow.position[edge.source] for edge in workflow.tasks[position].inputs)
    for position in workflow.topological:
        task, number = workflow.tasks[position], first + position
        if number not in needed:
            continue
        needs = instance.task_needs(number)
        station.load_alone(needs)
        if instance.streams is not None and task.stream is not None:
            template = int(instance.task_template[number])
            seating = max((of for (at, _), of in seatings.items() if at == template), key=lambda of: of.longest)
            tokens, before = instance.streams.tokens(number), int(instance.streams.goes_on[number])
            if before != number:  # with an answer that another has begun: what comes after it in one piece
                tokens = instance.streams.tokens(before)._replace(output=1 + tokens.output)
            outputs[number] = _answer_alone(tokens, station, before, seating)[before != number :]
            continue
        sources = {edge.source: first + workflow.position[edge.source] for edge in task.inputs}
        inputs = {
            edge.source: (given.get(sources[edge.source], outputs[sources[edge.source]]), edge.size_bytes)
            for edge in task.inputs
        }
        work = StationWork(job, workflow.name, task.name, task.fastest_us, needs, inputs)
        (outputs[number],), _ = station.run([work])
    return outputs


def _answer_alone(tokens: Tokens, station: Station, task: int, seating: Seating) -> Tensor:
    """Return the tokens that a request gets which nobody is beside."""
    seating = replace(seating, seats=1)
    prompt, uncached, output = tokens
    iterations: list[tuple[list[Read], list[int]]] = [
        ([Read(task, begin, min(seating.chunk, prompt - begin))], [])
        for begin in range(prompt - uncached, prompt, seating.chunk)
    ]
    iterations += [([], [task])] * (output - 1)
    for reads, writes in iterations:
        (answer,), _ = station.iterate(seating, reads, writes, [Answer(task, prompt, output)])
    return answer
