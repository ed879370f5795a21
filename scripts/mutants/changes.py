"""What can be changed in a file, one thing at a time."""

import ast
import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_COMPARED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_MASKED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
_COMPUTED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip
_PAIRS: Final = (
    ("less", "less_equal"), ("greater", "greater_equal"), ("equal", "not_equal"), ("and_", "or_"), ("any", "all"),
    ("and_kleene", "or_kleene"), ("is_null", "is_valid"), ("logical_and", "logical_or"), ("minimum", "maximum"),
    ("min", "max"), ("min_element_wise", "max_element_wise"),
)  # fmt: skip
_CALLED: Final = {name: other for pair in _PAIRS for name, other in (pair, pair[::-1])}
"""Functions of Arrow, NumPy and Python that decide, each with what stands in its place."""
_NEGATED: Final = ("is_in", "isin", "starts_with")
_CHOOSING: Final = ("if_else", "where")
_COSTS: Final = ("strict", "zero_copy_only", "copy")
"""Arguments that change what a call checks or costs, and never its result."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Attributes:
        path: of the file.
        name: what is changed, without line numbers: it stays the same while other lines come and go.
        source: the file with the change.
        lines: first and last line, from 1, of what is changed.
        function: qualified name of the outermost function around it; empty: none.
        first_line: of that function, with its decorators; 0: none.
        text: hash of that function's code; of the file's code outside of functions where there is no function.
        is_predicate: whether it decides: a comparison, a mask, a condition. Otherwise it counts or adds.
    """

    path: str
    name: str
    source: str
    lines: tuple[int, int]
    function: str
    first_line: int
    text: str
    is_predicate: bool


def deciding(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what can stand in place of an expression that decides."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            if type(operator) in _COMPARED:
                other = copy.deepcopy(node)
                other.ops[at] = _COMPARED[type(operator)]()
                yield other
    elif isinstance(node, ast.BoolOp):
        other_op = copy.deepcopy(node)
        other_op.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield other_op
        yield from (ast.BoolOp(node.op, [*node.values[:at], *node.values[at + 1 :]]) for at in range(len(node.values)))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _MASKED:
        yield ast.BinOp(node.left, _MASKED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Call):
        yield from _calling(node)


def _calling(node: ast.Call) -> Iterator[ast.AST]:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name in _CALLED:
        other = copy.deepcopy(node)
        if isinstance(other.func, ast.Attribute):
            other.func.attr = _CALLED[name]
        else:
            other.func = ast.Name(_CALLED[name])
        yield other
    elif name in _NEGATED and isinstance(called, ast.Attribute):
        yield ast.Call(ast.Attribute(called.value, "invert"), [node], [])
    elif name == "invert" and len(node.args) == 1:
        yield node.args[0]
    elif name in _CHOOSING and len(node.args) == 3:
        yield ast.Call(called, [node.args[0], node.args[2], node.args[1]], node.keywords)


def counting(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what can stand in place of an expression that counts."""
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield ast.Constant(node.value + 1)


def _asked(node: ast.AST, *, is_bool: bool) -> Iterator[ast.expr]:
    """Yield what a statement or an expression asks whether it is true, where that is not an operator."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    elif isinstance(node, ast.Return) and is_bool and node.value is not None:
        tests = [node.value]
    else:
        return
    for test in tests:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            yield test


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a file, each named once."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw, seen, tree = source.encode(), dict[str, int](), ast.parse(source)
    outermost = [("", 0, _hash_code(tree))]

    def put(node: ast.expr, other: ast.AST, where: str, *, decides: bool) -> Mutant:
        begin, last = starts[node.lineno - 1] + node.col_offset, node.end_lineno or node.lineno
        end = starts[last - 1] + (node.end_col_offset or 0)
        text = ast.unparse(other)
        name = f"{where}: {ast.unparse(node)} -> {text}"
        seen[name] = seen.get(name, 0) + 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        changed = (raw[:begin] + f"({text})".encode() + raw[end:]).decode()
        return Mutant(path, name, changed, (node.lineno, last), *outermost[-1], is_predicate=decides)

    def of(node: ast.AST, where: str, *, is_bool: bool, costs: bool = False) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.FunctionDef):
            is_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        for test in _asked(node, is_bool=is_bool):
            if not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
                yield put(test, ast.UnaryOp(ast.Not(), test), where, decides=True)
        if isinstance(node, ast.expr):
            for decides, others in ((not costs, deciding(node)), (False, counting(node))):
                yield from (put(node, other, where, decides=decides) for other in others)
        costs = isinstance(node, ast.keyword) and node.arg in _COSTS
        for child, field in ((child, field) for field, value in ast.iter_fields(node) for child in _nodes(value)):
            # Types say nothing when the program runs; what stands in an f-string is read by people.
            if field in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr):
                continue
            # What a parameter is by default is evaluated outside of the function.
            is_outer = isinstance(node, ast.FunctionDef) and field == "body" and not outermost[-1][0]
            if is_outer and isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                outermost.append((where, first, _hash_code(node)))
            yield from of(child, where, is_bool=is_bool, costs=costs)
            if is_outer:
                outermost.pop()

    yield from of(tree, "", is_bool=False)


def _nodes(value: object) -> Iterator[ast.AST]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, ast.AST):
            yield each


def _hash_code(node: ast.Module | ast.FunctionDef) -> str:
    """Return the hash of a function, or of what a file has outside of functions, without comments and docstrings."""
    bare = copy.deepcopy(node)
    for each in ast.walk(bare):
        if isinstance(node, ast.Module) and isinstance(each, ast.FunctionDef):
            each.body = []
        elif isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef):
            each.body = [part for part in each.body if not _is_text(part)]
    return hash_text(ast.unparse(bare).encode())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def hash_text(text: bytes) -> str:
    """Return a short hash."""
    return hashlib.sha256(text).hexdigest()[:16]
