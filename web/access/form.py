"""What a page's form sends."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from engine.errors import InvalidInput
from web.keys import INTAKE

MOST_BYTES = 16 * 1024
MOST_FIELDS = 20


async def fields(request: web.Request) -> Mapping[str, str]:
    """By name. Raises InvalidInput for anything but a small form of a known length."""
    return dict(await pairs(request, MOST_FIELDS))


async def pairs(request: web.Request, most: int) -> list[tuple[str, str]]:
    """Of a form that says the same name again and again, at most so many. Raises InvalidInput."""
    wrong = InvalidInput("This address takes the small form of its page.")
    length, packed = request.content_length, hdrs.CONTENT_ENCODING in request.headers
    if request.content_type != "application/x-www-form-urlencoded" or packed:
        raise wrong
    if length is None or length > MOST_BYTES:
        raise wrong
    body = await request.app[INTAKE].body(request)
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=most)
    except ValueError:
        raise wrong from None
