"""Kernels as Python text and back: `parse(show(kernel)) is kernel`.

    def scaled(out: buffer("f32"), x: buffer("f32"), alpha: param("f64")):
        for i in vector(lo, hi):
            store("out", i, mul_(load("x", i, "f32"), convert(alpha, "f32")))

Values that are used more than once are named (`t1 = …`); a second function, `finish`, holds the kernel's last step.
"""

from __future__ import annotations

import ast
from typing import Any

from tocha.inductor.loop_ir import (
    BINARY,
    BUILT_IN_SIZES,
    COMPARE,
    UNARY,
    Accumulate,
    Assign,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Compare,
    Const,
    Convert,
    Declare,
    Expr,
    Fma,
    If,
    Index,
    IRError,
    Kernel,
    Load,
    Local,
    Loop,
    Node,
    Param,
    Prefetch,
    Read,
    Select,
    Size,
    Statement,
    Store,
    Unary,
)  # fmt: skip

_NAMED = (Param, Size, Index)


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.temporaries = 0

    def kernel(self, k: Kernel) -> None:
        signature = [f'{b.name}: buffer("{b.type}")' for b in k.buffers]
        signature += [f'{p.name}: param("{p.type}")' for p in k.params] + [f"{s.name}: size" for s in k.sizes]
        self.lines.append(f"def {k.name}({', '.join(signature)}):")
        self.block(k.body, "    ", {})
        if k.finish:
            self.lines.append("def finish():")
            self.block(k.finish, "    ", {})

    def block(self, body: tuple[Statement, ...], indent: str, names: dict[Expr, str]) -> None:
        names = dict(names)
        for s in body:
            self.statement(s, indent, names)
        if not body:
            self.lines.append(indent + "pass")

    def statement(self, s: Statement, indent: str, names: dict[Expr, str]) -> None:
        local = dict(names)
        self.share([c for c in s.children() if isinstance(c, Expr)], indent, local)
        e = lambda x: self.expr(x, local)  # noqa: E731
        if isinstance(s, Loop):
            self.lines.append(f"{indent}for {s.index} in {s.kind}({e(s.start)}, {e(s.stop)}):")
            self.block(s.body, indent + "    ", {})
        elif isinstance(s, If):
            self.lines.append(f"{indent}if {e(s.condition)}:")
            self.block(s.body, indent + "    ", {})
        elif isinstance(s, Store):
            self.lines.append(f'{indent}store("{s.buffer}", {e(s.offset)}, {e(s.value)})')
        elif isinstance(s, Prefetch):
            self.lines.append(f'{indent}prefetch("{s.buffer}", {e(s.offset)}, "{s.type}")')
        elif isinstance(s, Declare):
            self.lines.append(f'{indent}declare("{s.name}", "{s.type}", {e(s.value)})')
        elif isinstance(s, Assign):
            self.lines.append(f'{indent}assign("{s.name}", {e(s.value)})')
        elif isinstance(s, Accumulate):
            self.lines.append(f'{indent}accumulate("{s.op}", "{s.name}", {e(s.value)})')
        elif isinstance(s, Local):
            self.lines.append(f'{indent}local("{s.name}", "{s.type}", {s.count})')

    def share(self, roots: list[Expr], indent: str, names: dict[Expr, str]) -> None:
        """Print what `roots` use more than once as assignments."""
        uses: dict[Node, int] = {}
        order: list[Node] = []

        def visit(node: Node) -> None:
            uses[node] = uses.get(node, 0) + 1
            if uses[node] == 1:
                for child in node.children():
                    visit(child)
                order.append(node)

        for root in roots:
            visit(root)
        for node in order:
            if uses[node] > 1 and isinstance(node, Expr) and not isinstance(node, (Const, Read, *_NAMED)):
                self.temporaries += 1
                name = f"t{self.temporaries}"
                self.lines.append(f"{indent}{name} = {self.expr(node, names)}")
                names[node] = name

    def expr(self, x: Any, names: dict[Expr, str]) -> str:
        if x in names:
            return names[x]
        e = lambda y: self.expr(y, names)  # noqa: E731
        if isinstance(x, Const):
            return f'const("{x.value!r}", "{x.type}")'
        if isinstance(x, _NAMED):
            return str(x.name)
        if isinstance(x, Read):
            return f'read("{x.name}", "{x.type}")'
        if isinstance(x, Load):
            return f'load("{x.buffer}", {e(x.offset)}, "{x.type}")'
        if isinstance(x, Unary):
            return f"{x.op}_({e(x.x)})"
        if isinstance(x, (Binary, Compare)):
            return f"{x.op}_({e(x.x)}, {e(x.y)})"
        if isinstance(x, Fma):
            return f"fma({e(x.x)}, {e(x.y)}, {e(x.z)})"
        if isinstance(x, Select):
            return f"select({e(x.condition)}, {e(x.x)}, {e(x.y)})"
        if isinstance(x, (Convert, Bitcast)):
            return f'{x.__class__.__name__.lower()}({e(x.x)}, "{x.type}")'
        if isinstance(x, Call):
            return f'call("{x.function}", "{x.type}", {", ".join(map(e, x.arguments))})'
        raise IRError(f"no text for {x.__class__.__name__}")


def show(node: Node) -> str:
    """A kernel, statement or expression as text."""
    printer = _Printer()
    if isinstance(node, Kernel):
        printer.kernel(node)
    elif isinstance(node, Statement):
        printer.statement(node, "", {})
    elif isinstance(node, Buffer):
        return f'{node.name}: buffer("{node.type}")'
    else:
        return printer.expr(node, {})
    return "\n".join(printer.lines) + "\n"


class _Parser:
    def __init__(self) -> None:
        self.names: dict[str, Expr] = {name: Size(name) for name in BUILT_IN_SIZES}

    def kernel(self, text: str) -> Kernel:
        functions = ast.parse(text).body
        head: Any = functions[0]
        buffers, params, sizes = [], [], []
        for argument in head.args.args:
            kind: Any = argument.annotation
            if isinstance(kind, ast.Name):
                sizes.append(Size(argument.arg))
                self.names[argument.arg] = sizes[-1]
            elif kind.func.id == "buffer":
                buffers.append(Buffer(argument.arg, kind.args[0].value))
            else:
                params.append(Param(argument.arg, kind.args[0].value))
                self.names[argument.arg] = params[-1]
        body = self.block(head.body)
        finish = self.block(functions[1].body) if len(functions) > 1 else ()  # type: ignore[attr-defined]
        return Kernel(head.name, tuple(buffers), tuple(params), tuple(sizes), body, finish)

    def block(self, body: list[Any]) -> tuple[Statement, ...]:
        out: list[Statement] = []
        for s in body:
            if isinstance(s, ast.For):
                call: Any = s.iter
                start, stop = map(self.expr, call.args)
                index = s.target.id  # type: ignore[attr-defined]
                self.names[index] = Index(index)
                out.append(Loop(index, start, stop, self.block(s.body), call.func.id))
            elif isinstance(s, ast.If):
                out.append(If(self.expr(s.test), self.block(s.body)))
            elif isinstance(s, ast.Assign):
                self.names[s.targets[0].id] = self.expr(s.value)  # type: ignore[attr-defined]
            elif isinstance(s, ast.Expr):
                out.append(self.call(s.value))
            elif not isinstance(s, ast.Pass):
                raise IRError(f"line {s.lineno}: {ast.unparse(s)} is no statement of a kernel")
        return tuple(out)

    def call(self, node: Any) -> Statement:
        a = [arg.value if isinstance(arg, ast.Constant) else self.expr(arg) for arg in node.args]
        kinds: dict[str, Any] = {
            "store": Store, "prefetch": Prefetch, "declare": Declare, "assign": Assign, "accumulate": Accumulate, "local": Local,
        }  # fmt: skip
        if node.func.id not in kinds:
            raise IRError(f"line {node.lineno}: {node.func.id} is no statement of a kernel")
        made: Statement = kinds[node.func.id](*a)
        return made

    def expr(self, node: Any) -> Expr:
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise IRError(f"line {node.lineno}: {node.id} is not defined")
            return self.names[node.id]
        a: list[Any] = [arg.value if isinstance(arg, ast.Constant) else self.expr(arg) for arg in node.args]
        name = node.func.id
        op = name[:-1]
        if name == "const":
            value = {"True": True, "False": False}.get(a[0])
            return Const((float(a[0]) if a[1] in ("f32", "f64") else int(a[0])) if value is None else value, a[1])
        if op in UNARY and name[-1] == "_" and len(a) == 1:
            return Unary(op, a[0])
        if name[-1] == "_" and len(a) == 2 and (op in BINARY or op in COMPARE):
            return Binary(op, *a) if op in BINARY else Compare(op, *a)
        if name == "call":
            return Call(a[0], tuple(a[2:]), a[1])
        kinds: dict[str, Any] = {"read": Read, "load": Load, "fma": Fma, "select": Select, "convert": Convert, "bitcast": Bitcast}
        if name not in kinds:
            raise IRError(f"line {node.lineno}: {name} is no operation")
        found: Expr = kinds[name](*a)
        return found


def parse(text: str) -> Kernel:
    """The kernel that `show` printed; IRError where the text doesn't make sense."""
    return _Parser().kernel(text)
