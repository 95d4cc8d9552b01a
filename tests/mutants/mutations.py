"""Small faults in Python code: what may go wrong in one place of one function.

Left alone are texts of messages, annotations, assertions (`strict=True` is one), default values, decorators and what is
outside functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A fault: in `field` of `parent`, at `at` if it is a list, is `new`."""

    tree: ast.Module
    file: Path
    function: str
    statement: ast.stmt | ast.ExceptHandler
    parent: ast.AST
    field: str
    at: int | None
    new: ast.AST

    def _put(self, new: ast.AST) -> ast.AST:
        if self.at is None:
            old: ast.AST = getattr(self.parent, self.field)
            setattr(self.parent, self.field, new)
        else:
            some = getattr(self.parent, self.field)
            old, some[self.at] = some[self.at], new
        return old

    @property
    def line(self) -> int:
        return self.statement.lineno

    @property
    def lines(self) -> range:
        """The lines of the statement, of a compound one those before its body."""
        body = getattr(self.statement, "body", None)
        end = max(body[0].lineno, self.line + 1) if body else (self.statement.end_lineno or self.line) + 1
        return range(self.line, end)

    def texts(self) -> tuple[str, str]:
        """The statement without the fault and with it; of a compound one its first line."""
        before = _text(self.statement)
        old = self._put(self.new)
        after = _text(self.new if isinstance(self.new, ast.stmt | ast.ExceptHandler) else self.statement)
        self._put(old)
        return before, after

    def code(self, file: str | None = None) -> CodeType:
        """The module's code with the fault."""
        old = self._put(self.new)
        try:
            return compile(self.tree, file or str(self.file), "exec")
        finally:
            self._put(old)

    def source(self) -> str:
        """The module's text with the fault."""
        old = self._put(self.new)
        try:
            return ast.unparse(self.tree)
        finally:
            self._put(old)


def _text(node: ast.AST) -> str:
    lines = ast.unparse(node).splitlines()
    return next((line for line in lines if not line.startswith("@")), "")


def mutants_of(file: Path) -> list[Mutant]:
    """All faults of a module's functions."""
    tree = ast.parse(file.read_text("utf-8"))
    return [mutant for name, function in _functions(tree, "") for mutant in _of_function(tree, file, name, function)]


def _functions(node: ast.AST, before: str) -> Iterator[tuple[str, _Function]]:
    """Functions that aren't inside others, and methods, by their qualified names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield before + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{before}{child.name}.")


def _of_function(tree: ast.Module, file: Path, name: str, function: _Function) -> Iterator[Mutant]:
    for statement, parent, field, at, node in _places(function, function):
        for new in _faults(node, parent):
            yield Mutant(tree, file, name, statement, parent, field, at, new)


def _places(
    node: ast.AST, statement: ast.stmt | ast.ExceptHandler
) -> Iterator[tuple[ast.stmt | ast.ExceptHandler, ast.AST, str, int | None, ast.AST]]:
    """Nodes inside a function where faults may be, with their statement, parent, and place in the parent."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "args", "decorator_list") and not isinstance(node, ast.Call):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.JoinedStr | ast.arguments):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            own = child if isinstance(child, ast.stmt | ast.ExceptHandler) else statement
            yield own, node, field, at, child
            if not isinstance(child, ast.Raise):
                yield from _places(child, own)


def _faults(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    for kind, faults in _FAULTS:
        if isinstance(node, kind):
            for new in faults(node, parent):
                yield ast.fix_missing_locations(ast.copy_location(new, node))


def _copy(node: ast.AST, **changes: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **changes})


def _compare(node: ast.Compare, _: ast.AST) -> Iterator[ast.AST]:
    for at, op in enumerate(node.ops):
        for other in _COMPARISONS[type(op)]:
            yield _copy(node, ops=[*node.ops[:at], other(), *node.ops[at + 1 :]])


def _operator(node: ast.BinOp | ast.AugAssign, _: ast.AST) -> Iterator[ast.AST]:
    if type(node.op) in _OPERATORS:
        yield _copy(node, op=_OPERATORS[type(node.op)]())


def _bool_op(node: ast.BoolOp, _: ast.AST) -> Iterator[ast.AST]:
    yield _copy(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _unary(node: ast.UnaryOp, _: ast.AST) -> Iterator[ast.AST]:
    yield node.operand


def _constant(node: ast.Constant, parent: ast.AST) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"x")
    elif isinstance(value, str) and isinstance(parent, ast.Compare | ast.Subscript):
        yield ast.Constant(value + "x")


def _test(node: ast.If | ast.While | ast.IfExp, _: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield _copy(node, test=ast.UnaryOp(ast.Not(), node.test))


def _conditions(node: ast.comprehension, _: ast.AST) -> Iterator[ast.AST]:
    for at, test in enumerate(node.ifs):
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield _copy(node, ifs=[*node.ifs[:at], ast.UnaryOp(ast.Not(), test), *node.ifs[at + 1 :]])


def _left_out(node: ast.stmt, _: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
        return
    if isinstance(node, ast.Return) and node.value is not None:
        return
    yield ast.Pass()


def _no_rounds(node: ast.For, _: ast.AST) -> Iterator[ast.AST]:
    yield _copy(node, iter=ast.Tuple([], ast.Load()))


def _loop_exit(node: ast.Break | ast.Continue, _: ast.AST) -> Iterator[ast.AST]:
    yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()


def _call(node: ast.Call, _: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        yield _copy(node, func=ast.Name(_FUNCTIONS[node.func.id], ast.Load()))
    for at, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            yield _copy(node, keywords=[*node.keywords[:at], *node.keywords[at + 1 :]])
    if isinstance(node.func, ast.Name) and node.func.id == "suppress":
        yield _copy(node, args=[])


def _slice(node: ast.Slice, _: ast.AST) -> Iterator[ast.AST]:
    for end in ("lower", "upper"):
        if getattr(node, end) is not None:
            yield _copy(node, **{end: None})


def _handler(node: ast.ExceptHandler, _: ast.AST) -> Iterator[ast.AST]:
    yield _copy(node, type=ast.Tuple([], ast.Load()))


_FAULTS: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., Iterator[ast.AST]]], ...] = (
    (ast.Compare, _compare),
    ((ast.BinOp, ast.AugAssign), _operator),
    (ast.BoolOp, _bool_op),
    (ast.UnaryOp, _unary),
    (ast.Constant, _constant),
    ((ast.If, ast.While, ast.IfExp), _test),
    (ast.comprehension, _conditions),
    ((ast.Expr, ast.AugAssign, ast.Assign, ast.Raise, ast.Return, ast.Delete), _left_out),
    (ast.For, _no_rounds),
    ((ast.Break, ast.Continue), _loop_exit),
    (ast.Call, _call),
    (ast.Slice, _slice),
    (ast.ExceptHandler, _handler),
)
