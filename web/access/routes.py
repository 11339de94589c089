"""What each route needs of its caller. A route that is not here needs what only an admin may."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from engine.access.principals import Action
from web.access import console
from web.keys import ENGINE

OPEN = frozenset(
    {
        "GET /healthz",
        "GET /livez",
        "GET /readyz",
        "GET /health",
        "GET /tei/{model}/health",
        "GET /v1/jobs/results/{ref}",
        "GET /static",
        "GET /login",
        "POST /login",
        "POST /first-run",
        "POST /logout",
    }
)
"""Probes, style sheets, the way in, and addresses of results, which nobody guesses."""

NEEDS: Mapping[str, Action] = {
    "GET /": Action.SEE,
    "GET /metrics": Action.SCRAPE,
    "GET /ws/status": Action.SEE,
    "GET /ws/cluster-status": Action.SEE,
    "GET /v1/models": Action.SEE,
    "GET /v1/models/{model}": Action.SEE,
    "POST /v1/models/{model}/{action}": Action.OPERATE,
    "POST /v1/encode/{model}": Action.CALL,
    "POST /v1/score/{model}": Action.CALL,
    "POST /v1/extract/{model}": Action.CALL,
    "POST /v1/generate/{model}": Action.CALL,
    "POST /v1/embeddings": Action.CALL,
    "POST /v1/chat/completions": Action.CALL,
    "POST /v1/completions": Action.CALL,
    "POST /v1/responses": Action.CALL,
    "POST /v1/audio/transcriptions": Action.CALL,
    "POST /v1/audio/translations": Action.CALL,
    "POST /v1/files": Action.CALL,
    "GET /v1/files": Action.SEE,  # one's own; an admin's: all
    "GET /v1/files/{file}": Action.SEE,
    "GET /v1/files/{file}/content": Action.SEE,
    "DELETE /v1/files/{file}": Action.CALL,
    "POST /v1/batches": Action.CALL,
    "GET /v1/batches": Action.SEE,
    "GET /v1/batches/{batch}": Action.SEE,
    "POST /v1/batches/{batch}/cancel": Action.CALL,
    "POST /v1/recommend": Action.CALL,
    "POST /v1/jobs": Action.CALL,
    "GET /v1/jobs": Action.SEE,  # one's own; an admin's: all
    "GET /v1/jobs/{job}": Action.SEE,
    "POST /v1/jobs/{job}/cancel": Action.CALL,
    "POST /v1/jobs/{job}/execute": Action.CALL,
    "POST /v1/jobs/{job}/repair": Action.CALL,
    "POST /v1/rerank": Action.CALL,
    "POST /v2/rerank": Action.CALL,
    "POST /v1/estimate": Action.CALL,
    "POST /embed": Action.CALL,
    "POST /embed_all": Action.CALL,
    "POST /embed_sparse": Action.CALL,
    "POST /rerank": Action.CALL,
    "POST /predict": Action.CALL,
    "POST /tokenize": Action.CALL,
    "POST /decode": Action.CALL,
    "POST /tei/{model}/embed": Action.CALL,
    "POST /tei/{model}/embed_all": Action.CALL,
    "POST /tei/{model}/embed_sparse": Action.CALL,
    "POST /tei/{model}/rerank": Action.CALL,
    "POST /tei/{model}/predict": Action.CALL,
    "POST /tei/{model}/tokenize": Action.CALL,
    "POST /tei/{model}/decode": Action.CALL,
    "GET /info": Action.SEE,
    "GET /tei/{model}/info": Action.SEE,
    "POST /tei/{model}": Action.CALL,
    "GET /openapi.json": Action.SEE,
    "GET /docs/api": Action.SEE,
    "POST /v1/pools": Action.CALL,
    "GET /v1/pools": Action.SEE,
    "GET /v1/pools/{pool}": Action.SEE,
    "POST /v1/pools/{pool}/renew": Action.CALL,
    "DELETE /v1/pools/{pool}": Action.CALL,
    "GET /v1/admin/models/{model}": Action.INSPECT,
    "POST /v1/admin/models/{model}/{action}": Action.OPERATE,
    "GET /v1/admin/catalog": Action.INSPECT,
    "POST /v1/admin/catalog/reload": Action.OPERATE,
    "POST /v1/admin/catalog/entries": Action.ADMINISTER,
    "DELETE /v1/admin/catalog/entries/{model}": Action.ADMINISTER,
    "GET /v1/admin/audit": Action.INSPECT,
    "GET /v1/admin/devices": Action.INSPECT,
    "GET /v1/admin/recordings": Action.INSPECT,
    "POST /v1/admin/recordings/start": Action.OPERATE,  # its content: only who administers
    "POST /v1/admin/recordings/stop": Action.OPERATE,
    "POST /v1/admin/recordings/trim": Action.ADMINISTER,
    "GET /v1/admin/recordings/{recording}": Action.INSPECT,
    "DELETE /v1/admin/recordings/{recording}": Action.ADMINISTER,
    "GET /v1/admin/recordings/{recording}/export": Action.OPERATE,
    "POST /v1/admin/recordings/{recording}/import": Action.ADMINISTER,
    "POST /v1/admin/pause": Action.OPERATE,
    "POST /v1/admin/resume": Action.OPERATE,
    "GET /account": Action.INSPECT,
    "POST /account/password": Action.INSPECT,  # one's own
    "GET /v1/admin/keys": Action.ADMINISTER,
    "POST /v1/admin/keys": Action.ADMINISTER,
    "DELETE /v1/admin/keys/{key}": Action.ADMINISTER,
    "GET /v1/admin/users": Action.ADMINISTER,
    "POST /v1/admin/users": Action.ADMINISTER,
    "DELETE /v1/admin/users/{user}": Action.ADMINISTER,
    "POST /v1/admin/users/{user}/password": Action.ADMINISTER,
    "POST /v1/admin/users/{user}/role": Action.ADMINISTER,
}


def pattern(method: str, path: str) -> str:
    """A route as it is written above; HEAD is a GET without its body."""
    return f"{'GET' if method == 'HEAD' else method} {path}"


def needed(request: web.Request) -> Action | None:
    """What the request's route needs; None for one that is open, and for a path where there is nothing."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    base = request.app[ENGINE].settings.base_path
    said = pattern(request.method, resource.canonical.removeprefix(base))
    return None if said in OPEN else NEEDS.get(said) or console.NEEDS.get(said, Action.ADMINISTER)
