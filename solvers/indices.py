"""A pass of numba's compiler: indices of kernels count from 0, so that none is tested for counting from the end.

That test, in each dimension of each access, took a fifth of the time of the search's kernels.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import compiler, compiler_machinery, ir_utils
from numba.core import ir as typed_ir
from numba.core.untyped_passes import IRProcessing

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
