"""How much machine code this process has at hand: kernels are read from disk, or compiled, at their first call."""

from __future__ import annotations

import sys


def count_loaded() -> int:
    """Return a count that grows whenever a kernel is read or compiled for types that it has not met before."""
    from numba.extending import is_jitted  # half a second that who only asks for a verb need not wait

    modules = [module for name, module in sys.modules.items() if name.startswith("solvers.")]
    kernels = (each for module in modules for each in vars(module).values() if is_jitted(each))
    return sum(len(kernel.signatures) for kernel in kernels)
