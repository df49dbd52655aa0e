"""The formats that can be imported, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importers.format import Format
from planner.importers.formats import azure_llm, gentd26, table

FORMATS: Mapping[str, Format] = {module.FORMAT.name: module.FORMAT for module in (gentd26, azure_llm, table)}
"""Every format by name."""
