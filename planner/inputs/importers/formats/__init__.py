"""The formats that can be imported; the order is that of help and pages."""

from __future__ import annotations

from collections.abc import Mapping

from planner.inputs.importers.format import Format
from planner.inputs.importers.formats import (
    alibaba_gpu_2023,
    asynchow,
    azure_functions_2021,
    azure_llm,
    cluster_jobs,
    gentd26,
    philly,
    rltune,
    table,
    wfcommons,
)

FORMATS: Mapping[str, Format] = {
    known.name: known
    for known in (
        gentd26.FORMAT,
        azure_llm.FORMAT,
        azure_functions_2021.FORMAT,
        alibaba_gpu_2023.FORMAT,
        cluster_jobs.ACME,
        cluster_jobs.HELIOS,
        philly.FORMAT,
        rltune.FORMAT,
        wfcommons.FORMAT,
        asynchow.FORMAT,
        table.FORMAT,
    )
}
"""Every format by name."""
