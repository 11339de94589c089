"""`/v1/admin`: what operators do and see. Every act is audited; what it is based on may be checked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from engine.access.principals import Kind
from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.orders import Action, Order, Previewed
from web import sending
from web.access.current import current
from web.api import naming
from web.errors import NotFound
from web.keys import ENGINE, INTAKE
from web.wire import status
from web.wire.decoding import decode
from web.wire.forms import Form

ALL = "*"
MOST_ROWS = 1000
SHOWN = 100


class Because(Struct, forbid_unknown_fields=True):
    """Of every act; the body may be left out."""

    reason: Annotated[str, Meta(max_length=500)] = ""
    if_version: int | None = None


Bound = Annotated[int, Meta(ge=1)] | None | UnsetType
"""Null is as the catalogue's entry says."""


class LimitsBody(Struct, forbid_unknown_fields=True):
    max_batch_cost: Bound = UNSET
    max_batch_jobs: Bound = UNSET
    max_item_bytes: Bound = UNSET
    max_item_cost: Bound = UNSET
    max_slots: Bound = UNSET
    max_running: Bound = UNSET


class OrderBody(Because, forbid_unknown_fields=True, rename={"service_class": "class"}):
    """`device` and `min_slots` are of pin; `limits`, `weight` and `class` of adjust."""

    device: Annotated[str, Meta(max_length=100)] | None = None
    min_slots: Annotated[int, Meta(ge=1, le=1000)] = 1
    limits: LimitsBody | None = None
    weight: Annotated[float, Meta(ge=0.001, le=1000)] | UnsetType | None = UNSET
    service_class: Literal["interactive", "standard", "background"] | UnsetType | None = UNSET


class EntryBody(Because, forbid_unknown_fields=True):
    """`entry` is YAML: the keys of one entry, or a file with one in it."""

    entry: Annotated[str, Meta(max_length=100_000)] = ""
    dry_run: bool = False
    """Only tell what would change."""


async def act(request: web.Request) -> web.Response:
    """Do it, and then tell how the model is. A pin says what no longer fits beside it.

    Raises NotFound, naming what there is, for an action that is none.
    """
    said = request.match_info["action"]
    if said not in [*Action]:
        raise NotFound(f"{said[:100]!r} is nothing that a model can be told; use {', '.join(Action)}.")
    action, asked = Action(said), await _body(request, OrderBody)
    if action is not Action.PIN and (asked.device or asked.min_slots > 1):
        raise InvalidInput(f"device and min_slots are of pin; {action} has no use for them.")
    changes = _changes(asked)
    if action is not Action.ADJUST and changes:
        raise InvalidInput(f"{', '.join(changes)}: this is of adjust; {action} has no use for it.")
    order = Order(
        action,
        request.match_info["model"],
        who=_who(request),
        reason=asked.reason,
        device=asked.device,
        min_slots=asked.min_slots,
        if_version=asked.if_version,
        changes=changes,
    )
    done = await request.app[ENGINE].operators.operate(order)
    return sending.small({**info(request), "no_longer_fits": list(done.no_longer_fits)})


def _changes(asked: OrderBody) -> dict[str, Any]:
    """What is to be adjusted, by the names that an entry has for it; what was left out stays."""
    limits = to_builtins(asked.limits) if asked.limits else {}
    own = {"weight": asked.weight, "service_class": asked.service_class}
    return {**limits, **{name: value for name, value in own.items() if value is not UNSET}}


async def show(request: web.Request) -> web.Response:
    """Raises UnknownModel."""
    return sending.small(info(request))


def info(request: web.Request) -> dict[str, object]:
    """The model that a path names. Raises UnknownModel."""
    engine = request.app[ENGINE]
    spec = naming.entry(engine.catalog, request.match_info["model"])
    mine = next(m for m in status.models(engine.catalog, engine.view()) if m["name"] == spec.id)
    targets = [spec.id, *(f"{spec.id}:{profile}" for profile in spec.profiles)]
    adjusted = {target: values for target in targets if (values := engine.operators.adjusted(target))}
    return {**mine, "version": engine.operators.version(spec.id), "adjusted": adjusted}


async def pause(request: web.Request) -> web.Response:
    """All intake. What waits goes on."""
    return await _everything(request, Action.PAUSE)


async def resume(request: web.Request) -> web.Response:
    return await _everything(request, Action.RESUME)


async def _everything(request: web.Request, action: Action) -> web.Response:
    asked = await _body(request, Because)
    order = Order(action, ALL, _who(request), asked.reason, if_version=asked.if_version)
    done = await request.app[ENGINE].operators.operate(order)
    return sending.small({"paused": action is Action.PAUSE, "version": done.version})


async def reload_catalog(request: web.Request) -> web.Response:
    """Answers when every entry that changed is served, or was rolled back. Raises CatalogRejected."""
    asked = await _body(request, Because)
    operators = request.app[ENGINE].operators
    done = await operators.reload_catalog(_who(request), asked.reason, asked.if_version)
    return sending.small(asdict(done))


async def catalog(request: web.Request) -> web.Response:
    """With the models whose entries were added while serving."""
    engine = request.app[ENGINE]
    added = sorted(await engine.operators.added_entries())
    return sending.small({**asdict(engine.view().catalog), "added_here": added})


async def add_entry(request: web.Request) -> web.Response:
    """Serve one more entry, kept in a file of its own. Raises CatalogRejected with every complaint."""
    asked, operators = await _body(request, EntryBody), request.app[ENGINE].operators
    if asked.dry_run:
        return sending.small(previewed(await operators.preview_entry(asked.entry)))
    done = await operators.add_entry(asked.entry, _who(request), asked.reason, asked.if_version)
    return sending.small(asdict(done), status=201)


async def remove_entry(request: web.Request) -> web.Response:
    """Of one that was added so. `?reason=` is audited."""
    reason, model = request.query.get("reason", "")[:500], request.match_info["model"]
    done = await request.app[ENGINE].operators.remove_entry(model, _who(request), reason)
    return sending.small(asdict(done))


def previewed(seen: Previewed) -> dict[str, object]:
    keys = seen.before.model_fields_set | seen.spec.model_fields_set if seen.before else set()
    differs = {
        key: {"before": before, "after": after}
        for key in sorted(keys)
        if (before := _plain(seen.before, key)) != (after := _plain(seen.spec, key))
    }
    return {**asdict(seen.change), "path": seen.path, "differs": differs}


def _plain(spec: ModelSpec | None, key: str) -> object:
    return None if spec is None else spec.model_dump(mode="json", include={key})[key]


async def audit(request: web.Request) -> web.Response:
    """The newest first; of one model with `model`. Raises InvalidInput for a limit that is none."""
    said = request.query.get("limit", str(SHOWN))
    if not said.isascii() or not said.isdecimal() or not 1 <= int(said) <= MOST_ROWS:
        raise InvalidInput(f"limit is a whole number from 1 to {MOST_ROWS}, not {said[:100]!r}.")
    rows = await request.app[ENGINE].operators.history(int(said), request.query.get("model"))
    return sending.small({"actions": [asdict(row) for row in rows]})


async def devices(request: web.Request) -> web.Response:
    """The ledger of each device and of the host's memory, to the byte."""
    view = request.app[ENGINE].view()
    host = {"budget_bytes": view.host_limit, "used_bytes": sum(view.host.values()), "units": view.host}
    return sending.small({"devices": [status.ledger(d, view) for d in view.devices], "host": host})


def _who(request: web.Request) -> str:
    principal = current(request)
    return "operator" if principal is None or principal.kind is Kind.LOCAL else principal.id


async def _body(request: web.Request, kind: type[Any]) -> Any:
    """What an act is told beside its name. Raises InvalidInput."""
    body = await request.app[INTAKE].body(request)
    return decode(body, Form.JSON, kind) if body.strip() else kind()
