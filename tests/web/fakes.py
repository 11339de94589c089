"""An engine with the same methods as the real one, and answers that follow from what was asked."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import anyio
import numpy as np

from engine.access.access import Access
from engine.batches.batches import Batches
from engine.batches.shelf import Shelf
from engine.catalog import Catalog, ModelSpec
from engine.closely import UnitView
from engine.config import Settings
from engine.errors import EngineError, NoRoom
from engine.estimates import Costed, Estimated, Outlook, Tokens
from engine.journal import Journal
from engine.memory.footprint import Footprint
from engine.orders import Action, CatalogDone, Done, Order
from engine.recordings import Recordings
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
from engine.wishes import Audited

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
    estimated: list[Request] = field(default_factory=list)
    left: anyio.Event = field(default_factory=anyio.Event)
    actions: list[tuple[str, str]] = field(default_factory=list)
    adoptable: dict[str, ModelSpec] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    outlook: Outlook = field(default_factory=lambda: Outlook(cold=False, wait=0.0, load=0.0, run=0.5))
    access: Access = None  # type: ignore[assignment]
    closely: FakeClosely = field(default_factory=lambda: FakeClosely())
    sizes: FakeSizes = field(default_factory=lambda: FakeSizes())
    batches: Batches = None  # type: ignore[assignment]
    recordings: Recordings = field(default_factory=lambda: Recordings(None, None, None))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        self.access = self.access or Access(self.settings)
        self.batches = self.batches or Batches(self.settings, Shelf(self.settings), time.time)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def need(self, model: str) -> None:
        if found := self.adoptable.get(model.partition(":")[0].replace("__", "/", 1)):
            self.catalog = Catalog({**self.catalog.models, found.id: found}, self.catalog.aliases)

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

    async def estimate(self, request: Request) -> Estimated:
        self.estimated.append(request)
        if self.failure:
            raise self.failure
        costs = tuple(len((item.text or "").split()) for item in request.items)
        return Estimated(Costed(request.model, "words", costs, Usage(sum(costs))), self.outlook)

    async def tokenize(self, model: str, texts: tuple[str, ...], special: bool) -> list[Tokens]:
        if self.failure:
            raise self.failure
        return [_tokens(text, special) for text in texts]

    async def spell(self, model: str, ids: tuple[tuple[int, ...], ...], special: bool) -> list[str]:
        if self.failure:
            raise self.failure
        return [" ".join(f"t{number}" for number in each if special or number != 101) for each in ids]

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

    @property
    def operators(self) -> FakeOperators:
        return FakeOperators(self)


class FakeClosely:
    """Nothing waits, nothing runs, nobody leaves; what is told to its journal has happened."""

    def __init__(self) -> None:
        self.journal = Journal()

    def lanes(self) -> list[object]:
        return []

    def batches(self) -> list[object]:
        return []

    def next_up(self, device: str) -> list[object]:
        return []

    def leaving(self, device: str) -> list[object]:
        return []

    def would_leave(self, device: str, size_bytes: int) -> list[object]:
        return []

    def ledger(self, device: str) -> list[tuple[str, str, int]]:
        return [("weights", "fake/encoder", 1000)]

    def displaced(self, unit: str) -> tuple[str, ...]:
        return ()

    def unit(self, unit: str) -> UnitView:
        return UnitView(unit, None, 0, None, 1.0, None, ())


@dataclass
class FakeSizes:
    """What each unit takes; one that takes more than `room` is refused."""

    room: float = math.inf
    known: dict[str, int] = field(default_factory=dict)

    async def footprint(self, unit: str) -> Footprint | None:
        return Footprint(self.known[unit]) if unit in self.known else None

    async def refusal(self, unit: str) -> EngineError | None:
        return NoRoom() if self.known.get(unit, 0) > self.room else None


@dataclass
class FakeOperators:
    """Remembers what was ordered in the engine's `actions`, and the whole order in its `orders`."""

    engine: FakeEngine

    async def operate(self, order: Order) -> Done:
        if self.engine.failure:
            raise self.engine.failure
        self.engine.orders.append(order)
        self.engine.actions.append((order.action.value, order.model))
        price = ("fake/writer",) if order.action is Action.PIN else ()
        return Done(len(self.engine.orders), price)

    async def reload_catalog(
        self, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        if self.engine.failure:
            raise self.engine.failure
        self.engine.actions.append(("reload", "catalogue"))
        return CatalogDone(added=("fake/new",), rolled_back={"fake/writer": "no such weights"})

    def version(self, model: str) -> int:
        return len(self.engine.orders)

    def adjusted(self, target: str) -> dict[str, object]:
        return {}

    async def added_entries(self) -> frozenset[str]:
        return frozenset()

    async def history(self, limit: int, target: str | None = None) -> list[Audited]:
        rows = [
            Audited(n, 1.0, o.who, o.action, o.model, o.reason, "available", "loaded", "ok", 2.0)
            for n, o in enumerate(self.engine.orders, 1)
            if target in (None, o.model)
        ]
        return rows[::-1][:limit]


def respond(request: Request) -> Response:
    outputs = tuple(_output(request, item) for item in request.items)
    return Response(request.model, outputs, Usage(input_tokens=3 * len(outputs)), TIMING, revision="r1")


def written(request: Request) -> list[Delta]:
    done = Response(request.model, (Generated("he", "stop"),), Usage(input_tokens=1, output_tokens=1), TIMING)
    return [Delta("he", 1), Delta("", 1, done)]


def _tokens(text: str, special: bool) -> Tokens:
    """A token a word, and one before them."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    ids = [*([101] if special else []), *(1000 + n for n in range(len(spans)))]
    marks = [*([1] if special else []), *(0 for _ in spans)]
    return Tokens(ids, marks, [*([(0, 0)] if special else []), *spans], {101: "[CLS]"})


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
