"""What is wrong with an entry of a YAML file, in words that name its line, its key and what would do."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Where = tuple[int | str, ...]

RELATIONS = {
    "greater_than": "it must be more than",
    "greater_than_equal": "it must be at least",
    "less_than": "it must be less than",
    "less_than_equal": "it must be at most",
}


def mistakes(error: ValidationError, root: type[BaseModel]) -> Iterator[tuple[Where, str]]:
    """Where in `root` and what, one for each mistake: what only follows from another is left out."""
    problems = error.errors()
    for problem in problems:
        where = problem["loc"]
        follows = any(len(p["loc"]) > len(where) and p["loc"][: len(where)] == where for p in problems)
        if not (follows and problem["type"] == "too_short"):
            yield where, _said(problem, root)


def line(node: yaml.Node | None, where: Sequence[int | str]) -> int:
    """The line, from 1, of the deepest part of `where` that the file has."""
    found = 1
    for step in where:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if pair is None:
                break
            found, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            found = node.start_mark.line + 1
        else:
            break
    return found


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """`name` is none of `known`: which there are, and the nearest."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"no {what} is called {name!r}; {hint}There are: {', '.join(known)}".replace("; There", "; there")


def _said(problem: ErrorDetails, root: type[BaseModel]) -> str:
    """The library's own words where we have none."""
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return unknown("key", str(problem["loc"][-1]), _keys(root, problem["loc"]))
        case "missing":
            return "this key is needed"
        case "literal_error" | "enum":
            return f"{problem['input']!r} is not possible; it is one of {context['expected']}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            (bound,) = context.values()
            return f"{problem['input']!r} is out of range: {RELATIONS[problem['type']]} {bound:g}"
        case "int_parsing" | "int_parsing_size" | "int_type" | "int_from_float":
            return f"{problem['input']!r} is no whole number"
        case "float_parsing" | "float_type" | "finite_number":
            return f"{problem['input']!r} is no number"
        case "string_pattern_mismatch":
            return f"{problem['input']!r} does not fit the pattern {context['pattern']}"
        case "too_short":
            return "at least one is needed"
        case "value_error":
            return problem["msg"].removeprefix("Value error, ")
    return problem["msg"]


def _keys(root: type[BaseModel], where: Where) -> list[str]:
    """The keys there are where the last part of `where` stands."""
    model = root
    for step in where[:-1]:
        if isinstance(step, str) and step in model.model_fields:
            model = _inner(model.model_fields[step].annotation) or model
    return list(model.model_fields)


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, alone or several of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)
