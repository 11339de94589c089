"""Text generation by SGLang: one server process a model, in an environment of its own (docs/generation.md).

Prompts, limits and errors are those of `causal_lm`; what runs the model is another program. Its KV is
a pool that is taken when it starts, so the whole of it counts with the weights, and a sequence takes
no further bytes. It needs a card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tokenizers import Tokenizer

from engine.adapters import causal_lm
from engine.adapters.causal_lm import Prompts
from engine.adapters.family import Footprint, Prepared, Preparer
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.sglang_server.flags import (
    Grant,
    ServerOptions,
    chunk_of,
    command,
    running_of,
)
from engine.adapters.sglang_server.meter import Meter
from engine.adapters.sglang_server.model import Served
from engine.adapters.sglang_server.server import Plan, Server
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, LoadFailed
from engine.requests import GenerateOptions, Item, Options, Task

NO_PYTHON = (
    "SGLang has no environment here. `serai backends install sglang` makes one, or the setting "
    "sglang_python names the interpreter of yours."
)


@dataclass(frozen=True, slots=True)
class SGLang:
    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.GENERATE])
    python: Path | None = None
    """The interpreter of SGLang's environment; None where there is none."""

    def beside(self, python: Path | None) -> SGLang:
        """The same family on this machine."""
        return replace(self, python=python)

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return Footprint(_grant(spec, path).device_bytes)

    def preparer(self, spec: ModelSpec, path: Path) -> Preparer:
        pool = ServerOptions.model_validate(spec.options).max_total_tokens
        most = min(pool, spec.max_tokens or pool)
        return _Prompts(causal_lm.FAMILY.preparer(spec.model_copy(update={"max_tokens": most}), path))

    def load(self, spec: ModelSpec, path: Path, device: str) -> Served:
        python = self.python
        if python is None:
            raise LoadFailed(NO_PYTHON, permanent=True)
        grant, meter = _grant(spec, path), Meter(device)
        options = ServerOptions.model_validate(spec.options)
        plan = Plan(
            model=spec.id,
            command=lambda: command(python, spec, path, device, grant, meter.free()),
            grant=grant,
            start_seconds=options.start_seconds,
        )
        server = Server(plan, meter)
        server.start()
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        return Served(server, tokenizer, grant.device_bytes, running_of(spec))


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The other backend's, less what this one cannot do."""

    prompts: Prompts

    @property
    def cutter(self) -> Cutter:
        return self.prompts.cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if isinstance(options, GenerateOptions) and options.grammar and options.grammar.kind == "lark":
            raise InvalidInput("SGLang follows JSON schemas and regular expressions, not Lark grammars")
        return self.prompts.prepare(task, items, options)


def _grant(spec: ModelSpec, path: Path) -> Grant:
    limits = spec.limits.model_copy(
        update={"max_batch_cost": chunk_of(spec), "max_running": running_of(spec)}
    )
    alone = causal_lm.FAMILY.footprint(spec.model_copy(update={"limits": limits}), path)
    return Grant.of(ServerOptions.model_validate(spec.options), alone)


FAMILY = SGLang()
