"""Rule R7, told apart from the code that keeps it: a residency ends where a load takes its room, or never."""

from __future__ import annotations

from truenorth.models import Instance, Residency, Timeline


def loose_ends(instance: Instance, timeline: Timeline) -> list[Residency]:
    """Return the residencies that end where no load begins that could have taken their room.

    That is one of the same GPU, with slots one of the same slot or model; or one of the same model anywhere if an
    operator limits its replicas.
    """

    def takes(load: Residency, stay: Residency) -> bool:
        if load.initial or load.load_start_us != stay.end_us:
            return False
        limited = instance.models[stay.model].name in instance.restrictions.max_replicas
        if load.gpu != stay.gpu:
            return limited and load.model == stay.model
        return stay.slot is None or load.slot == stay.slot or load.model == stay.model

    stays = timeline.residencies
    return [stay for stay in stays if stay.end_us is not None and not any(takes(load, stay) for load in stays)]
