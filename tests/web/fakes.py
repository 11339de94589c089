"""An engine with the same methods as the real one, and answers that follow from what was asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import anyio
import numpy as np

from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.errors import EngineError
from engine.requests import (
    Delta,
    Encoded,
    EncodeOptions,
    Entity,
    Extracted,
    Generated,
    Item,
    Output,
    OutputType,
    Request,
    Response,
    Scored,
    ScoreOptions,
    Sparse,
    Task,
    Timing,
    Usage,
)
from engine.view import DeviceView, EngineView, ModelView, ResidencyView

DIMS = 384
TIMING = Timing(prepare=0.0002, queue=0.0001, load=0.0, run=0.0005, total=0.001)


def vector(text: str) -> np.ndarray:
    """Different texts, different vectors."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    return np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)


def spec(name: str, *tasks: Task, **fields: object) -> ModelSpec:
    source = {"wheel": "weights==1", "revision": "r1"}
    values = {"id": name, "family": "fake", "tasks": tasks, "sources": [source], "max_tokens": 512, **fields}
    return ModelSpec.model_validate(values)


def catalog() -> Catalog:
    dims = {OutputType.DENSE: DIMS, OutputType.SPARSE: 30522, OutputType.MULTIVECTOR: 96}
    specs = [
        spec("fake/encoder", Task.ENCODE, outputs=[*dims], dims=dims, profiles={"short": {}}),
        spec("fake/reranker", Task.SCORE),
        spec("fake/extractor", Task.EXTRACT, inputs=["text", "document"]),
        spec("fake/writer", Task.GENERATE),
    ]
    return Catalog({s.id: s for s in specs}, {"encoder": "fake/encoder"})


@dataclass
class FakeEngine:
    """Remembers every request. `failure` is raised instead of an answer; `wait` comes before one.

    `left` is set when a caller left before it had its answer.
    """

    settings: Settings = field(default_factory=Settings)
    catalog: Catalog = field(default_factory=catalog)
    session_key: bytes = b"key"
    accepting: bool = True
    failure: Exception | None = None
    wait: float = 0.0
    deltas: list[Delta | Exception] = field(default_factory=list)
    answer: Callable[[Request], Response] | None = None
    requests: list[Request] = field(default_factory=list)
    left: anyio.Event = field(default_factory=anyio.Event)
    actions: list[tuple[str, str]] = field(default_factory=list)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def submit(self, request: Request) -> Response:
        self.requests.append(request)
        try:
            await asyncio.sleep(self.wait)
        except asyncio.CancelledError:
            self.left.set()
            raise
        if self.failure:
            raise self.failure
        return self.answer(request) if self.answer else respond(request)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        try:
            for delta in self.deltas or written(request):
                await asyncio.sleep(self.wait)
                if isinstance(delta, Exception):
                    raise delta
                yield delta
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            raise

    def view(self) -> EngineView:
        residency = ResidencyView("fake/encoder", "cpu", "ready", 1000, pinned=True)
        models = (
            ModelView("fake/encoder", "loaded", (residency,), waiting=2, loads=1),
            ModelView("fake/reranker", "failed", last_error={"code": "MODEL_LOAD_FAILED", "message": "<b>"}),
        )
        devices = (DeviceView("cpu", "cpu", 4000, 3000, {"weights": 1000}, slots=2, busy_slots=1),)
        return EngineView(models, devices, self.accepting, totals={"ok": len(self.requests)})

    def encoded(self, model: str, seconds: float) -> None:
        self.actions.append(("encoded", model))

    def metrics(self) -> bytes:
        return b"serai_requests_total 0\n"

    async def load(self, model: str) -> None:
        self.actions.append(("load", model))

    async def unload(self, model: str) -> None:
        self.actions.append(("unload", model))

    async def pin(self, model: str) -> tuple[str, ...]:
        if self.failure:
            raise self.failure
        self.actions.append(("pin", model))
        return ("fake/writer",)

    async def unpin(self, model: str) -> None:
        self.actions.append(("unpin", model))


def respond(request: Request) -> Response:
    outputs = tuple(_output(request, item) for item in request.items)
    return Response(request.model, outputs, Usage(input_tokens=3 * len(outputs)), TIMING, revision="r1")


def written(request: Request) -> list[Delta]:
    done = Response(request.model, (Generated("he", "stop"),), Usage(input_tokens=1, output_tokens=1), TIMING)
    return [Delta("he", 1), Delta("", 1, done)]


def _output(request: Request, item: Item) -> Output | EngineError:
    text = item.text or ""
    if isinstance(request.options, EncodeOptions):
        return _encoded(request.options, text)
    if isinstance(request.options, ScoreOptions):
        return Scored(float(len(set(text.split()) & set((request.options.query.text or "").split()))))
    if request.task is Task.EXTRACT:
        return Extracted((Entity(text[:3], "start", 0.5, 0, min(3, len(text))),))
    return Generated(text.upper(), "stop")


def _encoded(options: EncodeOptions, text: str) -> Encoded:
    asked = options.output_types or (OutputType.DENSE,)
    dense = vector(text)
    if options.output_dtype in ("binary", "ubinary"):
        dense = np.packbits(dense > 0)
    elif options.output_dtype != "float32":
        dense = (dense * 10).astype(options.output_dtype)
    sparse = Sparse(30522, np.array([5, 9], np.int32), np.array([1.5, 0.25], np.float32))
    return Encoded(
        dense=dense if OutputType.DENSE in asked else None,
        sparse=sparse if OutputType.SPARSE in asked else None,
        multivector=np.ones((4, 96), np.float32) if OutputType.MULTIVECTOR in asked else None,
    )
