"""The one way in which kernels are compiled, and the random numbers they draw.

Indices of kernels count from 0, so that none is tested for counting from the end: that test, in each dimension of each
access, took a fifth of the time of the search's kernels. A pass of numba's compiler sees to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import compiler, compiler_machinery, ir_utils
from numba.core import ir as typed_ir
from numba.core.caching import FunctionCache
from numba.core.untyped_passes import IRProcessing
from numpy.typing import NDArray

ir: Any = typed_ir  # numba annotates only parts of what passes need
tools: Any = ir_utils
builder: Any = compiler.DefaultPassBuilder
register: Any = compiler_machinery.register_pass


@register(mutates_CFG=False, analysis_only=False)
class _CountFromZero(compiler_machinery.FunctionPass):
    """Make every index that is no constant unsigned; those of tuples are constants."""

    _name = "count_from_zero"

    def __init__(self) -> None:
        base: Any = super()
        base.__init__()

    def run_pass(self, state: Any) -> bool:
        """Rewrite the accesses of a function, as its compiler asks."""
        for block in state.func_ir.blocks.values():
            body: list[Any] = []
            for statement in block.body:
                access = statement.value if isinstance(statement, ir.Assign) else statement
                reads = isinstance(access, ir.Expr) and access.op == "getitem"
                if reads or isinstance(access, ir.SetItem):
                    access.index = _count_from_zero(state.func_ir, access.index, block.scope, body)
                body.append(statement)
            block.body = body
        state.func_ir._definitions = tools.build_definitions(state.func_ir.blocks)
        return True


def _count_from_zero(function: Any, index: Any, scope: Any, body: list[Any]) -> Any:
    """Return a variable that holds an index without sign; what computes it goes to the end of `body`."""
    found = tools.guard(tools.get_definition, function, index)
    if isinstance(found, (ir.Const, ir.Global, ir.FreeVar)):
        return index
    if isinstance(found, ir.Expr) and found.op == "build_tuple":
        items = [_count_from_zero(function, item, scope, body) for item in found.items]
        return _assign(ir.Expr.build_tuple(items, index.loc), scope, body)
    unsigned = _assign(ir.Global("uintp", numba.uintp, index.loc), scope, body)
    return _assign(ir.Expr.call(unsigned, [index], (), index.loc), scope, body)


def _assign(value: Any, scope: Any, body: list[Any]) -> Any:
    variable = ir.Var(scope, tools.mk_unique_var("$index"), value.loc)
    body.append(ir.Assign(value, variable, value.loc))
    return variable


class FromZero(compiler.CompilerBase):
    """Numba's compiler with that pass."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes, as numba asks for them."""
        passes = builder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_CountFromZero, IRProcessing)
        passes.finalize()
        return [passes]


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

Floats = NDArray[np.float64]
RandomState = NDArray[np.uint64]


_ROOT = Path(__file__).parent.parent
_IMPORTED = re.compile(r"^from truenorth\.(solvers[\w.]*) import", re.MULTILINE)


def digest_texts(root: Path) -> str:
    """Return a digest of every text that machine code is made of, in the folder that holds `solvers` and `models`.

    Those are the kernels and whatever their modules import from `solvers`, since the order of the fields of a tuple and
    the value of a constant become machine code too; of `models` kernels know the constants in `tables`. Numba itself
    looks at its version and at the processor.
    """
    texts = {root / "models/tables.py": (root / "models/tables.py").read_text()}
    everything = {path: path.read_text() for path in (root / "solvers").rglob("*.py")}
    waiting = [path for path, text in everything.items() if "truenorth.solvers.compiled import" in text]
    while waiting:
        path = waiting.pop()
        if path in everything and path not in texts:
            texts[path] = everything[path]
            waiting += [root / f"{name.replace('.', '/')}.py" for name in _IMPORTED.findall(texts[path])]
    listed = sorted((path.relative_to(root).as_posix(), text) for path, text in texts.items())
    return hashlib.sha256(repr(listed).encode()).hexdigest()


def _machine_code_folder() -> Path:
    """Return a folder that belongs to this text of all kernels.

    Machine code is otherwise kept per source file, and would outlive a change in a kernel that another file calls.
    """
    kept = Path(vars(numba.config)["CACHE_DIR"] or _ROOT / "solvers/__pycache__")
    return kept / f"kernels-{digest_texts(_ROOT)[:16]}"


MACHINE_CODE = _machine_code_folder()
"""Here numba keeps what it has compiled."""
vars(numba.config)["CACHE_DIR"] = str(MACHINE_CODE)
_compile = cast(Callable[..., Any], numba.njit)  # its annotations leave some options out
_unliteral: Callable[[Any], Any] = numba.types.unliteral
_LEAN = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True, "pipeline_class": FromZero}


class _Kept(FunctionCache):
    """Numba's cache on disk; what is damaged there, by a full disk or a crash, counts as missing."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the machine code for a signature; None if there is none that can be read."""
        base: Any = super()
        try:
            return base.load_overload(signature, target)
        except Exception:  # a pickle that is cut short may raise anything
            with suppress(OSError):
                base.flush()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep machine code, unless the disk is full or may not be written."""
        base: Any = super()
        with suppress(OSError):
            base.save_overload(signature, compiled)


def _kept(compiled: Any) -> Any:
    """Keep the machine code of a function on disk."""
    make: Any = _Kept
    compiled._cache = make(compiled.py_func)
    return compiled


def kernel(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Compile a function at its first call; the machine code is kept on disk beside the source.

    Kernels only read and write the arrays they are handed. They allocate none and therefore count no references:
    counting them, atomically, for tuples of forty arrays at each call, took fifty times as long as the work itself.
    Indices count from 0: none may be negative.
    """
    return cast(Callable[Parameters, Returned], _once_per_type(_kept(_compile(nogil=True, **_LEAN)(function))))


def inlined(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Compile a function as a part of each kernel that calls it: handing tuples of arrays over costs more.

    It has no entry from Python, which takes tuples of arrays apart: those were a fifth of what is compiled.
    """
    part = _once_per_type(_kept(_compile(forceinline=True, no_cpython_wrapper=True, **_LEAN)(function)))
    part._insert, part._compile_for_args = _leave_out, _refuse
    return cast(Callable[Parameters, Returned], part)


def _leave_out(*_: Any) -> None:
    """Keep an entry that is none from numba's table of what Python may call."""


def _refuse(*_: Any, **__: Any) -> None:
    raise TypeError("an inlined function is a part of kernels; from Python call one of those")


def _once_per_type(compiled: Any) -> Any:
    """Compile a function once for all numbers of a type: numba would do so anew for each constant it is handed."""
    of_types = compiled.get_call_template
    compiled.get_call_template = lambda given, named: of_types(
        tuple(map(_unliteral, given)), {name: _unliteral(value) for name, value in named.items()}
    )
    return compiled


def allocating_kernel(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Compile a function that makes arrays or lists of its own, and is called rarely."""
    return cast(Callable[Parameters, Returned], _kept(_compile(error_model="numpy", nogil=True)(function)))


def random_state(seed: int) -> RandomState:
    """Return the state of a random stream; equal seeds give equal streams on every machine."""
    # Odd, so that it is not 0, which xorshift never leaves.
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)


@kernel
def random_below(state: RandomState, limit: int) -> int:
    """Return a random integer in [0, limit), by xorshift64* (Vigna, 2016); `limit` below 2^31."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    # The upper bits: the lowest ones of the multiplication are the least random.
    high = (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    # Scaled, not reduced modulo the limit: no division, and 31 by 31 bits cannot overflow.
    return int(np.int64((high * np.uint64(limit)) >> np.uint64(31)))


@kernel
def random_unit(state: RandomState) -> float:
    """Return a random number in (0, 1)."""
    # Never 0 nor 1, whose logarithms the callers take.
    return (random_below(state, 2147483647) + 0.5) / 2147483648.0
