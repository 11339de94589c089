"""What the pages of replays and of plans have in common: begin one, stop it, delete it, come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import hdrs, web

from engine.errors import EngineError
from web.access.current import who
from web.access.form import fields
from web.console.errands import ERRANDS, Errand
from web.keys import ENGINE


class Listing(Protocol):
    """The page that lists them, with the form as it was sent and what is wrong with it."""

    async def __call__(
        self, request: web.Request, *, form: Mapping[str, str], error: EngineError | None = None
    ) -> web.Response: ...


@dataclass(frozen=True, slots=True)
class ErrandPages:
    """Of one kind. Its name is also the part of an address that names one of them."""

    kind: str
    listing: Listing
    begin: Callable[[web.Request, Mapping[str, str]], Awaitable[Errand]]

    async def show(self, request: web.Request) -> web.Response:
        return await self.listing(request, form=request.query)

    async def act(self, request: web.Request) -> web.Response:
        """Begin one, or delete one that has ended: 303. What is wrong is told on the page."""
        form: Mapping[str, str] = {}
        try:
            form = await fields(request)
            if form.get("act") == "delete":
                await self._delete(request, form.get("id", ""))
                return self._to(request, "")
            errand = await self.begin(request, form)
        except EngineError as error:
            return await self.listing(request, form=form, error=error)
        return self._to(request, f"/{errand.id}")

    async def stop(self, request: web.Request) -> web.Response:
        """End it; what a replay has measured until then is kept. Raises NotFound."""
        errand = await self.found(request)

        async def do() -> None:
            await request.app[ERRANDS].stop(errand)

        await request.app[ENGINE].recordings.noted(f"stop {self.kind}", errand.source, who(request), "", do)
        return self._to(request, f"/{errand.id}")

    async def found(self, request: web.Request) -> Errand:
        """The one that the address names. Raises NotFound."""
        return await request.app[ERRANDS].find(self.kind, request.match_info[self.kind])

    async def _delete(self, request: web.Request, name: str) -> None:
        errands = request.app[ERRANDS]
        errand = await errands.find(self.kind, name)
        await request.app[ENGINE].recordings.noted(
            f"delete {self.kind}", errand.source, who(request), "", lambda: errands.delete(errand)
        )

    def _to(self, request: web.Request, path: str) -> web.Response:
        where = f"{request.app[ENGINE].settings.base_path}/console/{self.kind}s{path}"
        return web.Response(status=303, headers={hdrs.LOCATION: where})
