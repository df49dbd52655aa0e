"""The formats that can be imported; the order is that of help and pages."""

from __future__ import annotations

from collections.abc import Mapping

from truenorth.planner.inputs.importers.format import Format
from truenorth.planner.inputs.importers.formats import (
    alibaba,
    asynchow,
    azure,
    cluster_jobs,
    philly,
    rltune,
    table,
    tokens,
    wfcommons,
)

FORMATS: Mapping[str, Format] = {
    known.name: known
    for known in (
        alibaba.GENTD26,
        azure.LLM,
        azure.FUNCTIONS,
        alibaba.GPU_2023,
        cluster_jobs.ACME,
        cluster_jobs.HELIOS,
        philly.FORMAT,
        rltune.FORMAT,
        wfcommons.FORMAT,
        asynchow.FORMAT,
        table.FORMAT,
        tokens.FORMAT,
    )
}
"""Every format by name."""
