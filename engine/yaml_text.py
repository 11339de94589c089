"""A YAML text as plain values, or what is wrong with it and on which line; never anything else."""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 60
"""Levels of a file: what handles its values calls itself for each."""

MOST = 500_000
"""Values of a file, counted as often as they are referred to: ten lines can stand for billions."""


class YamlError(Exception):
    """The text cannot be used; `line` counts from 1, and is 0 where nobody knows it."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read(text: str) -> tuple[yaml.Node | None, Any]:
    """Its tree, which knows lines, and what it holds. Raises YamlError."""
    try:
        return _read(text, _FAST)
    except (yaml.YAMLError, RecursionError):
        return _read_slowly(text)


def _read_slowly(text: str) -> tuple[yaml.Node | None, Any]:
    """By the parser that is written in Python: ten times slower, and what it complains of can be read."""
    try:
        return _read(text, _Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(f"there is a character #x{error.character:04x}; no text has that", line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or str(error), mark.line + 1 if mark else 0) from None
    except RecursionError:
        raise YamlError(f"it is more than {DEEPEST} levels deep") from None


def _read(text: str, kind: type[Any]) -> tuple[yaml.Node | None, Any]:
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        if tree is None:
            return None, None
        _Measured().measure(tree, 1)
        return tree, loader.construct_document(tree)
    finally:
        loader.dispose()


class _Said(yaml.constructor.SafeConstructor):
    """The parser itself raises whatever Python raises for a text that is no number, date or truth value."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:
            kind = node.tag.rpartition(":")[2]
            said = f"{str(node.value)[:80]!r} is no {kind}: {error}"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None


class _Loader(_Said, yaml.SafeLoader):
    pass


def _by_libyaml() -> type[Any]:
    """The one in Python where PyYAML was built without libyaml, as none of its wheels is."""
    if not yaml.__with_libyaml__:
        return _Loader

    class Fast(_Said, yaml.CSafeLoader):
        pass

    return Fast


_FAST = _by_libyaml()


class _Measured:
    """How much each part of a tree comes to when every alias in it is written out."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[int, int]] = {}
        """Values and levels of each part, by its identity; none while it is being measured."""

    def measure(self, node: yaml.Node, level: int) -> tuple[int, int]:
        """Raises YamlError for what has no end, or none in sight."""
        line = node.start_mark.line + 1
        if level > DEEPEST:
            raise YamlError(f"it is more than {DEEPEST} levels deep", line)
        if id(node) in self._sizes:
            return self._known(node, level)
        self._sizes[id(node)] = (0, 0)
        values, levels = 1, 1
        for part in _parts(node):
            size, depth = self.measure(part, level + 1)
            if not size:
                raise YamlError("this holds itself: its alias is inside what it names", line)
            values, levels = values + size, max(levels, depth + 1)
        if values > MOST:
            raise YamlError(f"its aliases stand for more than {MOST} values", line)
        self._sizes[id(node)] = values, levels
        return values, levels

    def _known(self, node: yaml.Node, level: int) -> tuple[int, int]:
        values, levels = self._sizes[id(node)]
        if level + levels - 1 > DEEPEST:
            raise YamlError(
                f"with its aliases it is more than {DEEPEST} levels deep", node.start_mark.line + 1
            )
        return values, levels


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
