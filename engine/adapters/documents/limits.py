"""What one document may take before it is given up. The entry's `options` may say otherwise."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from engine.adapters.documents.child import Bounds
from engine.catalog import ModelSpec
from engine.quantities import Bytes, Count, Seconds

MiB = 1 << 20

Span = Annotated[Seconds, Field(gt=0, le=86400)]
Size = Annotated[Bytes, Field(ge=MiB)]


class DocumentLimits(BaseModel):
    """Other options of an entry are not looked at. A caller's options do not count."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    max_seconds: Span | None = None
    """Of a conversion; None: by its pages."""
    max_memory: Size | None = None
    """Of the child that converts, beyond which its allocations fail; None: as the family says."""
    max_answer: Size = 64 * MiB
    """Of what a conversion gives."""
    max_expanded: Size = 512 * MiB
    """Of the parts of an Office file together, expanded."""
    max_expansion: Count = 200
    """So many times its own bytes, for an Office file that expands to more than `SMALL`."""
    max_parts: Count = 10_000
    """Of an Office file."""

    @classmethod
    def of(cls, spec: ModelSpec) -> DocumentLimits:
        """Raises ValueError for an option that cannot be meant."""
        return cls.model_validate(dict(spec.options))

    def bounds(self, usual: Bounds) -> Bounds:
        """Of the child, where this says something else than usual."""
        memory = self.max_memory or usual.memory_bytes
        return Bounds(
            memory_bytes=memory,
            resident_bytes=min(usual.resident_bytes, memory),
            answer_bytes=self.max_answer,
            jobs=usual.jobs,
        )

    def seconds(self, usual: float) -> float:
        return self.max_seconds or usual


USUAL = DocumentLimits()
