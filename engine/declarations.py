"""What is said once about each setting, for whoever shows them: pages, the console, a command's help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.config import Settings


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said once about a setting."""

    name: str
    section: str
    unit: str
    help: str
    default: Any

    @property
    def secret(self) -> bool:
        return self.unit == "secret"

    @property
    def variable(self) -> str:
        return f"SERAI_{self.name.upper()}"


def declarations() -> Iterator[Declaration]:
    """All settings in the order in which they are declared."""
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        yield Declaration(
            name, str(extra["section"]), str(extra["unit"]), field.description or "", field.default
        )
