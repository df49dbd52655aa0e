"""The formats that can be imported, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importers.format import Format
from planner.importers.formats import gentd26

FORMATS: Mapping[str, Format] = {module.FORMAT.name: module.FORMAT for module in (gentd26,)}
"""Every format by name."""
