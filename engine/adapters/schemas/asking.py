"""From a request's labels, options and output_schema to questions. All of it is the client's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adapters.labelling.open_labels import OpenLabels, Thresholds, checked, flag, names, no_arrays
from engine.adapters.schemas.questions import Field, Kind, Question, check
from engine.adapters.schemas.structures import document, structures
from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.requests import ExtractOptions

THRESHOLD = 0.5
PARTS = ("entities", "relations", "classifications", "structures")
"""Keys of an output_schema that is no JSON schema."""
MAX_FIELDS = 200
"""In one request, labels included."""


class Asking:
    """Reads requests to one model."""

    def __init__(self, spec: ModelSpec, without: frozenset[Kind] = frozenset()) -> None:
        """`without`: what the model cannot be asked for."""
        self._spec = spec
        self._without = without
        self._labels = OpenLabels(spec)

    def questions(self, options: ExtractOptions) -> tuple[Question, ...]:
        """In the order in which the model reads them. Raises InvalidInput."""
        if options.instruction is not None:
            raise InvalidInput("This model follows labels and schemas, and no instruction.")
        no_arrays(options.output_schema, "output_schema")
        no_arrays(options.extra, "options")
        thresholds = Thresholds.of(self._spec, options, THRESHOLD)
        schema = dict(options.output_schema or {})
        if "properties" in schema:
            asked = document(schema, thresholds)
            schema = {}
        else:
            if strange := sorted(set(schema) - set(PARTS)):
                raise InvalidInput(
                    f"output_schema.{strange[0][:100]} is not known to this model; it takes "
                    f"{', '.join(PARTS)}, or a JSON schema with properties."
                )
            asked = structures(schema.get("structures", {}), thresholds)
        found = [*asked, *self._entities(schema, options, thresholds, bool(asked))]
        found += self._relations(schema.get("relations", options.extra.get("relations")), thresholds)
        given = schema.get("classifications", options.extra.get("classifications"))
        found += self._classifications(given or {}, options, thresholds)
        if not found:
            found = self._entities({"entities": ()}, options, thresholds, False)
        if sum(len(question.fields) for question in found) > MAX_FIELDS:
            raise InvalidInput(f"A request asks for at most {MAX_FIELDS} labels and fields.")
        if beyond := [question.kind for question in found if question.kind in self._without]:
            what = "relations" if beyond[0] is Kind.RELATION else "structures"
            raise InvalidInput(f"{self._spec.id} does not give {what} here; ask another GLiNER2.")
        check(found)
        return tuple(found)

    def _entities(
        self, schema: Mapping[str, Any], options: ExtractOptions, thresholds: Thresholds, others: bool
    ) -> list[Question]:
        asked = schema.get("entities", options.labels)
        others = others or bool(schema.keys() - {"entities"}) or "classifications" in options.extra
        if not asked and (others or "relations" in options.extra):
            return []
        described = asked if isinstance(asked, Mapping) else {}
        wanted = self._labels.choose(_listed(asked, "entities"), thresholds)
        fields = [Field(*each) for each in zip(wanted.names, wanted.prompts, wanted.thresholds, strict=True)]
        said = tuple((f.read, checked(described[f.name])) for f in fields if described.get(f.name))
        return [Question(Kind.ENTITIES, "entities", tuple(fields), said)]

    def _relations(self, asked: Any, thresholds: Thresholds) -> list[Question]:
        described = asked if isinstance(asked, Mapping) else {}
        found = []
        for name in dict.fromkeys(_listed(asked or (), "relations")):
            ends = tuple(Field(end, end, thresholds[checked(name)], many=False) for end in ("head", "tail"))
            said = ((name, checked(described[name])),) if described.get(name) else ()
            found.append(Question(Kind.RELATION, name, ends, said))
        return found

    def _classifications(self, asked: Any, options: ExtractOptions, thresholds: Thresholds) -> list[Question]:
        if not isinstance(asked, Mapping):
            raise InvalidInput("classifications maps the name of each task to its labels.")
        usual = flag(self._spec, options, "multi_label", False)
        return [_task(task, labels, usual, thresholds) for task, labels in asked.items()]


def _task(task: str, labels: Any, multi: bool, thresholds: Thresholds) -> Question:
    where = f"classifications.{task[:100]}"
    if isinstance(labels, Mapping):
        if strange := sorted(set(labels) - {"labels", "multi_label"}):
            raise InvalidInput(f"{where}.{strange[0][:100]} is not known; labels and multi_label are.")
        multi, labels = labels.get("multi_label", multi), labels.get("labels")
    if not isinstance(multi, bool):
        raise InvalidInput(f"{where}.multi_label is true or false.")
    described = labels if isinstance(labels, Mapping) else {}
    listed = dict.fromkeys(_listed(labels or (), where))
    if not listed:
        raise InvalidInput(f"{where} names no labels.")
    fields = tuple(Field(checked(name), name, thresholds[name]) for name in listed)
    said = tuple((name, checked(described[name])) for name in listed if described.get(name))
    return Question(Kind.CLASSES, checked(task), fields, said, multi_label=multi)


def _listed(asked: Any, where: str) -> tuple[str, ...]:
    """Names, or those that a mapping describes."""
    return names(list(asked) if isinstance(asked, Mapping) else asked, where)
