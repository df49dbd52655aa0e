"""The formats that can be imported; the order is that of help and pages. What is said of each is in `formats.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from truenorth.planner.inputs.importers.format import Format, Hardware, Reader
from truenorth.planner.inputs.importers.formats import alibaba, azure, cluster_jobs, dags, table, tokens

_SAID = tomllib.loads(files(__package__).joinpath("formats.toml").read_text())


def _format(name: str, reader: type[Reader], **more: Any) -> Format:
    """Return a format with what is said of it; `more` are `hardware` and `dated` where a file has to be asked."""
    said = _SAID[name] | more
    hardware = said.pop("hardware")
    documented = Hardware.of(**hardware) if isinstance(hardware, dict) else hardware
    return Format(name, reader=reader, notes=tuple(said.pop("notes", ())), hardware=documented, **said)


def _is_dated(reader: Any, paths: Sequence[Path]) -> bool:
    return bool(reader.clock(paths))


FORMATS: Mapping[str, Format] = {
    known.name: known
    for known in (
        _format("gentd26", alibaba.GenTD26, hardware=alibaba.measure_hardware),
        _format("azure-llm", azure.AzureLLM),
        _format("azure-functions-2021", azure.AzureFunctions),
        _format("alibaba-gpu-2023", alibaba.AlibabaGPU),
        _format("acme", cluster_jobs.Acme),
        _format("helios", cluster_jobs.Helios),
        _format("philly", cluster_jobs.Philly),
        _format("rltune", cluster_jobs.RLTune),
        _format("elasticflow", cluster_jobs.ElasticFlow),
        _format("wfcommons", dags.WfCommons),
        _format("asynchow", dags.AsyncHow),
        _format("table", table.TableReader, dated=_is_dated, any_clock=True),
        _format(tokens.NAME, tokens.TokenReader, dated=_is_dated, any_clock=True),
    )
}
"""Every format by name."""
