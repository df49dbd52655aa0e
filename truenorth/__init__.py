"""Plans, bounds and comparisons of GPU inference clusters: what a person asks, in one name.

>>> import truenorth as tn
>>> scenario = tn.load("experiments/scenarios/paper_small.yaml")
>>> tn.simulate(scenario, "srpt").policy
'srpt'

Every name is loaded when it is first asked for: this import waits for no solver. In a notebook answers show themselves.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

_NAMES = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_HOME = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _NAMES, re.MULTILINE)}
"""Where each call, and the type of each answer, lives: the stub says it, to type checkers as well."""
_OF_DEVICES = {"Profile", "Replayed", "Trial"}
"""Types whose modules need PyTorch."""
__all__ = sorted(_HOME.keys() - _OF_DEVICES)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'truenorth' has no {name!r}; it has {', '.join(_HOME)}")
    if "IPython" in sys.modules:
        import_module("truenorth.planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
