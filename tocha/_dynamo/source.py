"""Sources: where a value that existed before the segment is found when the segment starts, as a tree of expressions.

    source ::= frame's local | frame's stack slot | constant | source.attribute | source[item] | …

A source carries the checks that its value must pass; sources that share a prefix share its evaluation.
"""

from __future__ import annotations

from typing import Any


class Source:
    """`template` makes the expression from the parent's variable ({}) and constants ({0}, {1}, … by name in `constants`)."""

    __slots__ = ("checks", "children", "constants", "label", "needed", "parent", "step", "template")

    def __init__(self, parent: Source | None, template: str, constants: tuple[Any, ...] = (), label: str = "") -> None:
        self.parent, self.template, self.constants = parent, template, constants
        self.children: dict[Any, Source] = {}
        self.checks: dict[str, tuple[str, tuple[Any, ...]]] = {}  # words for people -> condition on {v}, its constants
        self.needed = False  # whether the segment wants the value
        self.step: tuple[str, Any] | None = None  # ("attribute" | "item" | "class", name) if it is one of these
        self.label = label

    def child(self, template: str, label: str, *constants: Any, step: tuple[str, Any] | None = None) -> Source:
        """The source that `template` makes of this one; the same one every time. `step` says it in words if it is a common one."""
        key = (template, *map(id, constants))
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Source(self, template, constants, label.replace("{}", self.label))
            found.step = step
        return found

    def attribute(self, name: str) -> Source:
        return self.child(f"{{}}.{name}", f"{{}}.{name}", step=("attribute", name))

    def item(self, key: Any, label: str = "") -> Source:
        """An item of a tuple, list or dict."""
        if type(key) is int or (type(key) is str and "{" not in key):
            return self.child(f"{{}}[{key!r}]", label or f"{{}}[{key!r}]", step=("item", key))
        return self.child("{}[{0}]", label or "{}[…]", key, step=("item", key))

    def check(self, words: str, condition: str, *constants: Any) -> None:
        """Ask that the value fulfils a condition (an expression of {v} and constants {0}, {1}, …)."""
        self.checks.setdefault(words, (condition, constants))

    def want(self) -> Source:
        """Hand the value to the segment."""
        self.needed = True
        return self


class Constants:
    """Objects that generated code names."""

    def __init__(self, **names: Any) -> None:
        self.scope: dict[str, Any] = dict(names)
        self._of: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """A name for an object."""
        found = self._of.get(id(value))
        if found is None:
            found = self._of[id(value)] = f"K{len(self._of)}"
            self.scope[found] = value
        return found
