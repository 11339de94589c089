"""`/console/entries`: catalogue entries that are added to the running server after a look, and removed."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import hdrs, web

from engine import own_entries
from engine.errors import CatalogRejected, EngineError, InvalidInput
from engine.orders import Previewed
from web import errors
from web.access.current import who
from web.access.form import fields
from web.console import inforce, pages
from web.console.hub import HUB
from web.keys import ENGINE

EXAMPLE = """\
id: org/name
family: text_encoder
tasks: [encode]
outputs: [dense]
dims: {dense: 384}
sources:
  - hub: org/name
"""
MOST_REASON = 500


async def show(request: web.Request) -> web.Response:
    """`?model=` begins with that model's entry."""
    named = request.query.get("model", "")[:300]
    text = EXAMPLE
    if named:
        spec, _ = request.app[ENGINE].catalog.resolve(named)
        text = own_entries.written(request.app[ENGINE].operators.entry(spec.id))
    return await _page(request, text)


async def act(request: web.Request) -> web.Response:
    """`look` tells what would change; `add` and `remove` lead back by 303."""
    form = await fields(request)
    operators, said, text = request.app[ENGINE].operators, form.get("act", ""), form.get("entry", "")
    reason, version = form.get("reason", "").strip()[:MOST_REASON], _version(form)
    try:
        if said == "look":
            return await _page(request, text, seen=await operators.preview_entry(text))
        if said == "add":
            await operators.add_entry(text, who(request), reason, version)
        elif said == "remove":
            await operators.remove_entry(form.get("model", ""), who(request), reason, version)
        else:
            raise InvalidInput("This form asks for nothing that the server knows.")
    except EngineError as error:
        return await _page(request, text or EXAMPLE, error=error)
    request.app[HUB].doubt()
    base = request.app[ENGINE].settings.base_path
    return web.Response(status=303, headers={hdrs.LOCATION: f"{base}/console/entries"})


async def _page(
    request: web.Request, text: str, *, seen: Previewed | None = None, error: EngineError | None = None
) -> web.Response:
    operators = request.app[ENGINE].operators
    complaints = error.details.get("complaints", []) if isinstance(error, CatalogRejected) else []
    context = {
        "text": text,
        "seen": seen,
        "differs": list(differs(seen)) if seen else [],
        "error": error,
        "complaints": complaints,
        "added": sorted(await operators.added_entries()),
        "catalog_version": request.app[ENGINE].view().catalog.version,
    }
    status = errors.status(error) if error else 200
    return await pages.page(request, "entries", context, status=status)


def differs(seen: Previewed) -> list[tuple[str, str, str]]:
    """Key, value now, value then: of a new entry every key that it says."""
    keys = seen.spec.model_fields_set | (seen.before.model_fields_set if seen.before else set())
    found = []
    for key in (name for name in type(seen.spec).model_fields if name in keys):
        now = inforce.written(getattr(seen.before, key)) if seen.before else "–"
        then = inforce.written(getattr(seen.spec, key))
        if now != then:
            found.append((key, now, then))
    return found


def _version(form: Mapping[str, str]) -> int | None:
    said = form.get("version", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else None
