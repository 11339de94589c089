"""JSON schemas as structures: what a model that copies parts of a text can fill of them.

A text is one field, an array of texts is a field with several values, an `enum` is a choice. On the top
level an object is one structure and an array of objects is as many as there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adapters.labelling.open_labels import Thresholds, checked, names
from engine.adapters.schemas.questions import Field, Kind, Lies, Question
from engine.errors import InvalidInput

ROOT = "record"
"""What the model reads as the name of a JSON schema without a title."""


def document(schema: Mapping[str, Any], thresholds: Thresholds) -> list[Question]:
    """The structures of one JSON schema, whose answer is `data` itself. Raises InvalidInput."""
    simple: dict[str, Any] = {}
    found: list[Question] = []
    for name, said in _properties(schema, "output_schema").items():
        where = f"output_schema.properties.{name[:100]}"
        items = said.get("items") if isinstance(said, Mapping) else None
        if isinstance(said, Mapping) and "properties" in said:
            found.append(_structure(name, said, where, Lies.ALONE, thresholds))
        elif isinstance(items, Mapping) and "properties" in items:
            found.append(_structure(name, items, f"{where}.items", Lies.LISTED, thresholds))
        else:
            simple[name] = said
    if simple:
        whole = {"properties": simple}
        title = schema.get("title", ROOT)
        found.insert(0, _structure(title, whole, "output_schema", Lies.SPREAD, thresholds))
    return found


def structures(asked: Any, thresholds: Thresholds) -> list[Question]:
    """Structures by name, each a JSON schema of an object or a list of fields. Raises InvalidInput."""
    if not isinstance(asked, Mapping):
        raise InvalidInput("output_schema.structures maps the name of each structure to its fields.")
    found = []
    for name, said in asked.items():
        where = f"output_schema.structures.{name[:100]}"
        fields = (
            said if isinstance(said, Mapping) else {"properties": {key: {} for key in names(said, where)}}
        )
        found.append(_structure(name, fields, where, Lies.LISTED, thresholds))
    return found


def _structure(
    name: Any, said: Mapping[str, Any], where: str, lies: Lies, thresholds: Thresholds
) -> Question:
    fields, descriptions = [], []
    for field, about in _properties(said, where).items():
        fields.append(_field(field, about, f"{where}.properties.{field[:100]}", checked(name), thresholds))
        if about.get("description"):
            descriptions.append((field, checked(about["description"])))
    return Question(Kind.STRUCTURE, checked(name), tuple(fields), tuple(descriptions), lies)


def _field(name: str, said: Mapping[str, Any], where: str, structure: str, thresholds: Thresholds) -> Field:
    many = _type(said) == "array"
    value = said.get("items", {}) if many else said
    if not isinstance(value, Mapping) or _type(value) not in ("string", None) or "properties" in value:
        raise InvalidInput(
            f"{where}: this model copies texts, so that a field is a string, an enum of strings, or an array "
            "of such; objects and arrays of objects go on the top level."
        )
    choices = names(value.get("enum", ()), f"{where}.enum")
    own = f"{structure}.{name}"
    threshold = thresholds[own if own in thresholds.own else name]
    return Field(checked(name), name, threshold, many, tuple(map(checked, dict.fromkeys(choices))))


def _type(said: Mapping[str, Any]) -> Any:
    """null beside a type says that it may be missing, which any field may."""
    kind = said.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        return kinds[0] if len(kinds) == 1 else kinds or None
    return kind


def _properties(said: Mapping[str, Any], where: str) -> Mapping[str, Mapping[str, Any]]:
    found = said.get("properties")
    if not isinstance(found, Mapping) or not found:
        raise InvalidInput(f"{where}.properties names the fields.")
    if strange := [name for name, about in found.items() if not isinstance(about, Mapping)]:
        raise InvalidInput(f"{where}.properties.{strange[0][:100]} is a schema.")
    return found
