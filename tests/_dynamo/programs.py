"""Random Python programs on tensors, numbers, lists, dicts, objects and closures, with and without graph breaks."""

from __future__ import annotations

import random
from typing import Any


class Program:
    """Writes the source of a function `f(a, b, n, items, table, state)`; `source()` is a module's text."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.tensors, self.numbers = ["a", "b"], ["n"]
        self.depth = self.made = 0

    def source(self) -> str:
        for _ in range(self.r.randint(3, 9)):
            self.statement()
        kept = [*dict.fromkeys(self.tensors[-4:]), *dict.fromkeys(self.numbers[-2:])]
        body = "\n".join("    " + line for line in [*self.lines, f"return [{', '.join(kept)}], items, table, state"])
        return f"import tocha as torch\n\nTOTAL = [0]\nCOUNT = 0\n\n\ndef f(a, b, n, items, table, state):\n    global COUNT\n{body}\n"

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def tensor(self) -> str:
        t = self.r.choice(self.tensors)
        return self.r.choice(
            [
                t,
                t,
                t,
                f"({t} + {self.number()})",
                f"torch.tanh({t})",
                f"({t} * {self.r.choice(self.tensors)})",
                f"{t}.clamp(-2, 2)",
                f"state.w * {t}",
                f"({t} @ {self.r.choice(self.tensors)}).tanh()",
                f"{t}.t()",
                f"torch.where({t} > 0, {t}, {self.number()})",
                f"{t}[0]",
                "table.get('t', a)",
            ]
        )

    def number(self) -> str:
        n = self.r.choice(self.numbers)
        return self.r.choice(
            [
                n,
                n,
                str(self.r.randint(-2, 3)),
                f"({n} + 1)",
                "len(items)",
                f"({n} * 2 % 5)",
                "state.k",
                "len(table)",
                "a.shape[0]",
                "COUNT",
                "TOTAL[0]",
            ]
        )

    def broken(self) -> str:
        """A number that only running the graph tells."""
        return f"round(float({self.r.choice(self.tensors)}.sum().item()), 1)"

    def condition(self) -> str:
        return self.r.choice(
            [
                f"{self.number()} > 1",
                f"{self.r.choice(self.tensors)}.sum() > 0",
                "'t' in table",
                f"{self.number()} == {self.number()}",
                "items",
                "isinstance(items[0], int) if items else True",
                f"{self.broken()} > 0.5",
                "state.flag",
            ]
        )

    def statement(self) -> None:
        choices = [self.assign] * 4 + [self.write] * 4 + [self.in_place] * 2
        if self.depth < 3:
            choices += [
                self.branch,
                self.branch,
                self.loop,
                self.attempt,
                self.function,
                self.context,
                self.comprehend,
                self.generate,
            ]
        self.r.choice(choices)()

    def block(self) -> None:
        self.depth += 1
        tensors, numbers = list(self.tensors), list(self.numbers)
        for _ in range(self.r.randint(1, 3)):
            self.statement()
        self.tensors, self.numbers = tensors, numbers
        self.depth -= 1

    def assign(self) -> None:
        if self.r.random() < 0.6:
            name = self.fresh("t") if self.r.random() < 0.6 or self.depth else self.r.choice(self.tensors)
            self.put(f"{name} = {self.tensor()}")
            self.tensors.append(name)
        else:
            name = self.fresh("k") if self.r.random() < 0.6 else self.r.choice(self.numbers)
            self.put(f"{name} = {self.number() if self.r.random() < 0.8 else self.broken()}")
            self.numbers.append(name)

    def write(self) -> None:
        self.put(
            self.r.choice(
                [
                    f"items.append({self.tensor()})",
                    f"items.append({self.number()})",
                    f"table['t'] = {self.tensor()}",
                    f"table[{self.number()}] = {self.number()}",
                    f"state.k = {self.number()}",
                    f"state.w = {self.tensor()}",
                    "items[:] = items[1:]",
                    "TOTAL[0] = (TOTAL[0] + 1) % 3",
                    "COUNT = (COUNT + 1) % 4",
                    "table.pop('t', None)",
                    "items.reverse()",
                    f"state.seen.append({self.number()})",
                    "state.flag = not state.flag",
                    f"table.setdefault('l', []).append({self.number()})",
                    "items = [*items, n]",
                    "table = {**table, 'x': n}",
                    "state.me = state",
                    "items.append(table)" if self.r.random() < 0.1 else "state.alias = items",
                    f"state.add({self.tensor()})",
                ]
            )
        )

    def in_place(self) -> None:
        t = self.r.choice(self.tensors)
        self.put(
            self.r.choice(
                [
                    f"{t} = {t} * 1",
                    f"{t} += 1",
                    f"{t}.mul_(0.5)",
                    f"{t}[0] = {self.number()}",
                    "state.w.add_(0.25)",
                    f"{t}.detach().view(-1)[0] = 1",
                ]
            )
        )

    def branch(self) -> None:
        self.put(f"if {self.condition()}:")
        self.block()
        if self.r.random() < 0.5:
            self.put("else:")
            self.block()

    def loop(self) -> None:
        i = self.fresh("i")
        self.put(
            self.r.choice(
                [
                    f"for {i} in range({self.r.randint(1, 3)}):",
                    f"for {i}, _ in enumerate(items[:2]):",
                    f"for {i}, _ in zip([1, 2], 'ab'):",
                ]
            )
        )
        self.numbers.append(i)
        self.block()
        self.put(f"    if {self.condition()}: {self.r.choice(['break', 'continue'])}" if self.r.random() < 0.4 else "    pass")
        self.numbers.remove(i)

    def attempt(self) -> None:
        self.put("try:")
        self.block()
        self.put(
            "    "
            + self.r.choice(
                [
                    f"if {self.condition()}: raise ValueError({self.number()})",
                    "table['nothing']",
                    "items[99]",
                    "pass",
                    "a.nothing",
                    "int('x')",
                ]
            )
        )
        self.put("except (ValueError, KeyError) as e:" if self.r.random() < 0.3 else "except Exception as e:")
        self.put("    items.append(str(e))")
        if self.r.random() < 0.4:
            self.put("finally:")
            self.block()

    def function(self) -> None:
        name, k = self.fresh("g"), self.fresh("c")
        self.put(f"{k} = {self.number()}")
        self.put(f"def {name}(x, y={self.number()}):")
        self.put(f"    nonlocal {k}") if self.depth < 0 else None
        self.put(f"    z = x * y + {k}")
        self.put(f"    if {self.condition()}: return z + 1")
        self.put("    return z")
        if self.r.random() < 0.5:
            self.put(f"{k} = {self.number()}")
        t = self.fresh("t")
        self.put(f"{t} = {name}({self.tensor()})")
        self.tensors.append(t)
        if self.r.random() < 0.3:
            self.put(f"state.fn = {name}")

    def context(self) -> None:
        self.put(self.r.choice(["with torch.no_grad():", "with state:", "with torch.enable_grad():"]))
        self.block()

    def comprehend(self) -> None:
        self.put(
            f"items.extend([{self.tensor()} * j for j in range(2)])"
            if self.r.random() < 0.5
            else f"table.update({{j: {self.number()} for j in range(2)}})"
        )

    def generate(self) -> None:
        name, t = self.fresh("g"), self.fresh("t")
        self.put(f"def {name}():")
        self.put(f"    for j in range({self.r.randint(1, 3)}):")
        self.put(f"        if {self.condition()}: yield {self.tensor()} * j")
        self.put(f"        yield {self.tensor()}.sum()")
        self.put(f"{t} = sum(p.sum() for p in {name}()) + a")
        self.tensors.append(t)


class State:
    """An object that programs write to."""

    def __init__(self, w: Any) -> None:
        self.w, self.k, self.flag = w, 1, True
        self.seen: list[Any] = []

    def __enter__(self) -> State:
        self.k += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self.k -= 1

    def add(self, t: Any) -> None:
        self.w = self.w + t.sum()
        self.seen.append(self.k)
