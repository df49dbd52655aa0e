"""Plans, bounds and comparisons of GPU inference clusters: what a person asks, in one name.

>>> import truenorth as tn
>>> scenario = tn.load("experiments/scenarios/paper_small.yaml")
>>> scenario.simulate("srpt").policy
'srpt'

Every name is loaded when it is first asked for: this import waits for no solver. In a notebook answers show themselves.
"""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

_NAMES = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_HOME = {name: module for module, name in re.findall(r"^from (truenorth\.\S+) import (\w+)", _NAMES, re.MULTILINE)}
_HOME |= dict.fromkeys(re.findall(r"^(?:def|class) (\w+)", _NAMES, re.MULTILINE), "truenorth.calls")
"""Where each call, and the type of each answer, lives: the stub says it, to type checkers as well."""
_OF_DEVICES = {"Profile", "Replayed", "Trial"}
"""Types whose modules need PyTorch."""
__all__ = sorted(_HOME.keys() - _OF_DEVICES)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        near = get_close_matches(name, _HOME, n=1)
        said = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(_HOME)}"
        raise AttributeError(f"module 'truenorth' has no {name!r}; {said}", name=name, obj=sys.modules[__name__])
    import_module("truenorth.calls")  # gives scenarios and answers their methods
    if "IPython" in sys.modules:
        import_module("truenorth.planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
