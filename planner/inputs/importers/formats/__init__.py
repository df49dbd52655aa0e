"""The formats that can be imported, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from planner.inputs.importers.format import Format
from planner.inputs.importers.formats import (
    acme,
    alibaba_gpu_2023,
    asynchow,
    azure_functions_2021,
    azure_llm,
    gentd26,
    helios,
    philly,
    rltune,
    table,
    wfcommons,
)

FORMATS: Mapping[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        gentd26,
        azure_llm,
        azure_functions_2021,
        alibaba_gpu_2023,
        acme,
        helios,
        philly,
        rltune,
        wfcommons,
        asynchow,
        table,
    )
}
"""Every format by name."""
