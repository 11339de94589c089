"""What each route is for, what it takes and what it gives: by the types that its codec is written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.orders import CatalogDone
from web.access import keys, users
from web.api import admin, pools, recordings
from web.wire import administered as told
from web.wire import bodies, described, estimate, items, job_calls, jobs, options, recommend, rerank
from web.wire.openai import batches, chat, completions, embeddings, files, responses
from web.wire.openai import described as openai
from web.wire.tei import bodies as tei

JSON, MSGPACK, TEXT, HTML = "application/json", "application/msgpack", "text/plain", "text/html"
EVENTS, FORM = "text/event-stream", "application/x-www-form-urlencoded"
MULTIPART, LINES = "multipart/form-data", "application/jsonl"
PACKED = (JSON, MSGPACK)


@dataclass(frozen=True, slots=True)
class Operation:
    """`takes` and `gives` are types, or one of several in a tuple; `Any` is a value of free shape, None no
    body at all."""

    says: str
    takes: Any = None
    gives: Any = Any
    forms: tuple[str, ...] = (JSON,)
    """Media types of what it takes."""
    answers: tuple[str, ...] = (JSON,)
    status: int = 200
    optional: bool = False
    """The body may be left out."""
    query: Mapping[str, str] = field(default_factory=dict)
    """What may stand after the question mark, and what for."""


def _page(says: str) -> Operation:
    return Operation(says, answers=(HTML,))


def _plain(says: str) -> Operation:
    return Operation(says, gives=str, answers=(TEXT,))


def _sent(says: str) -> Operation:
    """A form of a page, which leads to another page."""
    return Operation(says, takes=Any, gives=None, forms=(FORM,), status=303)


def _packed(says: str, takes: type, gives: type) -> Operation:
    return Operation(says, takes, gives, PACKED, PACKED)


def _written(says: str, takes: type, gives: Any = Any) -> Operation:
    """Whole, or as it is written."""
    return Operation(says, takes, gives, answers=(JSON, EVENTS))


_SERVER: Mapping[str, Operation] = {
    "GET /": Operation(
        "The console for a browser, a list of routes for anything else.", answers=(JSON, HTML)
    ),
    "GET /healthz": _plain("The process answers."),
    "GET /livez": _plain("The same."),
    "GET /readyz": _plain("New requests are taken; 503 while the server drains."),
    "GET /health": Operation("Capacity, as a gateway of the published client tells it."),
    "GET /metrics": _plain("Prometheus."),
    "GET /openapi.json": Operation("This reference, for programs."),
    "GET /docs/api": _page("This reference, to be read."),
    "GET /ws/status": Operation(
        "A socket with a snapshot of the server, again and again.", None, None, status=101
    ),
    "GET /ws/cluster-status": Operation("The same, as a cluster would say it.", None, None, status=101),
    "GET /login": _page("The form that a user comes in by."),
    "POST /login": _sent("A name and a password become a session."),
    "POST /first-run": _sent("The token that was printed at the start makes the first user."),
    "POST /logout": _sent("The session ends."),
}

_NATIVE: Mapping[str, Operation] = {
    "GET /v1/models": Operation("Every model and its state.", gives=described.ModelList),
    "GET /v1/models/{model}": Operation("One of them.", gives=described.ModelEntry),
    "POST /v1/models/{model}/{action}": Operation(
        "Load, unload, pin or unpin it.", admin.OrderBody, described.ModelEntry, optional=True
    ),
    "POST /v1/encode/{model}": _packed(
        "Texts or images to dense, sparse or multivector embeddings.",
        bodies.EncodeBody,
        described.EncodeAnswer,
    ),
    "POST /v1/score/{model}": _packed(
        "How well each item answers a query, best first.", bodies.ScoreBody, described.ScoreAnswer
    ),
    "POST /v1/extract/{model}": _packed(
        "Entities, classes, objects, or a document's Markdown.", bodies.ExtractBody, described.ExtractAnswer
    ),
    "POST /v1/generate/{model}": _written(
        "A text; with `stream` as server-sent events.", bodies.GenerateBody, described.GenerateAnswer
    ),
    "POST /v1/estimate": _packed(
        "What a call would cost and how long it would take, without running it.",
        estimate.EstimateBody,
        estimate.Estimation,
    ),
    "POST /v1/recommend": Operation(
        "A model for a task, of those that run here.", recommend.RecommendBody, recommend.Recommended
    ),
    "POST /v1/pools": Operation(
        "Accepted for clients that reserve capacity; this server is one pool.", pools.Spec, told.PoolAnswer
    ),
    "GET /v1/pools": Operation("The pools that were made.", gives=told.PoolList),
    "GET /v1/pools/{pool}": Operation("One of them.", gives=told.PoolAnswer),
    "POST /v1/pools/{pool}/renew": Operation("Keep it.", gives=told.PoolAnswer),
    "DELETE /v1/pools/{pool}": Operation("Forget it.", gives=told.PoolDeleted),
}

_RERANK = "Documents by their worth for a query, between 0 and 1, as clients of Cohere and Jina ask for it."

_OTHERS: Mapping[str, Operation] = {
    "POST /v1/rerank": Operation(_RERANK, rerank.RerankBody, rerank.Reranked),
    "POST /v2/rerank": Operation(_RERANK, rerank.RerankBody, rerank.Reranked),
    "POST /v1/embeddings": Operation(
        "Texts or token ids to vectors, as OpenAI.", embeddings.EmbeddingsBody, openai.EmbeddingsAnswer
    ),
    "POST /v1/chat/completions": _written(
        "The next message of a conversation, as OpenAI.", chat.ChatBody, openai.ChatAnswer
    ),
    "POST /v1/completions": _written(
        "What follows a prompt, as OpenAI.", completions.CompletionBody, openai.CompletionAnswer
    ),
    "POST /v1/audio/transcriptions": Operation(
        "A recording's text, as OpenAI: a form with `file` and `model`.",
        Any,
        Any,
        (MULTIPART,),
        (JSON, TEXT),
    ),
    "POST /v1/audio/translations": Operation("The same in English.", Any, Any, (MULTIPART,), (JSON, TEXT)),
    "POST /v1/responses": _written(
        "The answer to a question, as OpenAI.", responses.ResponsesBody, openai.ResponsesAnswer
    ),
}

_LIST = {"after": "the id of the last on the page before", "limit": "how many", "order": "asc or desc"}

_BATCHES: Mapping[str, Operation] = {
    "POST /v1/files": Operation(
        "Keep a file of calls, one a line: a form with `file` and `purpose`, or the content alone.",
        Any,
        files.FileObject,
        (MULTIPART, LINES),
        query={"purpose": "of bare content: `batch`", "filename": "of bare content"},
    ),
    "GET /v1/files": Operation(
        "Files, the newest first.", gives=files.FileList, query={**_LIST, "purpose": "batch or batch_output"}
    ),
    "GET /v1/files/{file}": Operation("One of them.", gives=files.FileObject),
    "GET /v1/files/{file}/content": Operation("What is in it.", gives=str, answers=(LINES,)),
    "DELETE /v1/files/{file}": Operation("Forget it.", gives=files.FileDeleted),
    "POST /v1/batches": Operation(
        "Run the calls of a file, in the class background.", batches.BatchBody, batches.BatchObject
    ),
    "GET /v1/batches": Operation("Batches, the newest first.", gives=batches.BatchList, query=_LIST),
    "GET /v1/batches/{batch}": Operation("One of them, as it is now.", gives=batches.BatchObject),
    "POST /v1/batches/{batch}/cancel": Operation("Run nothing more of it.", gives=batches.BatchObject),
}

_JOBS: Mapping[str, Operation] = {
    "POST /v1/jobs": Operation(
        "One operation over many items, in the class background; with `Idempotency-Key` made once.",
        job_calls.JobBody,
        jobs.JobMade,
        status=201,
    ),
    "GET /v1/jobs": Operation("Jobs, the newest first.", gives=jobs.JobList, query=_LIST),
    "GET /v1/jobs/{job}": Operation("One of them, as it is now.", gives=jobs.JobObject),
    "GET /v1/jobs/results/{ref}": Operation(
        "Results of a job, at the address that the job names.",
        gives=None,
        answers=("application/octet-stream",),
    ),
    "POST /v1/jobs/{job}/cancel": Operation("Run nothing more of it.", gives=jobs.JobObject),
    "POST /v1/jobs/{job}/execute": Operation("Of connectors only: refused."),
    "POST /v1/jobs/{job}/repair": Operation("Of connectors only: refused."),
}

_TEI: Mapping[str, Operation] = {
    "POST {}/embed": Operation("A vector an input.", tei.EmbedBody, list[list[float]]),
    "POST {}/embed_all": Operation("A vector a token.", tei.SparseBody, list[list[list[float]]]),
    "POST {}/embed_sparse": Operation(
        "The numbers of a sparse vector that are not 0.", tei.SparseBody, list[list[described.SparseValue]]
    ),
    "POST {}/rerank": Operation("Texts by their worth for a query.", tei.RerankBody, list[described.Rank]),
    "POST {}/predict": Operation(
        "The classes of each input, the likeliest first; of pairs, their score.",
        tei.PredictBody,
        (list[described.Prediction], list[list[described.Prediction]]),
    ),
    "POST {}/tokenize": Operation(
        "What the model's tokenizer makes of texts.", tei.TokenizeBody, list[list[described.SimpleToken]]
    ),
    "POST {}/decode": Operation("The texts that token ids stand for.", tei.DecodeBody, list[str]),
    "GET {}/info": Operation("What the model is.", gives=described.Info),
}

_ADMIN: Mapping[str, Operation] = {
    "GET /v1/admin/models/{model}": Operation(
        "A model, with its state's version.", gives=described.ModelEntry
    ),
    "POST /v1/admin/models/{model}/{action}": Operation(
        "Load, unload, pin, unpin, pause, resume, drain, reload or adjust it.",
        admin.OrderBody,
        described.ModelEntry,
        optional=True,
    ),
    "GET /v1/admin/catalog": Operation("What the catalogue is made of."),
    "POST /v1/admin/catalog/reload": Operation("Read it again.", admin.Because, CatalogDone, optional=True),
    "POST /v1/admin/catalog/entries": Operation(
        "Serve one more entry, or with `dry_run` tell what would change.", admin.EntryBody, status=201
    ),
    "DELETE /v1/admin/catalog/entries/{model}": Operation(
        "Take out an entry that was added so.", gives=CatalogDone, query={"reason": "for the audit"}
    ),
    "GET /v1/admin/audit": Operation(
        "What operators did, the newest first.",
        gives=told.Audit,
        query={"limit": "how many; 100 when it is not said", "model": "of one model only"},
    ),
    "GET /v1/admin/devices": Operation("The ledger of each device, to the byte."),
    "GET /v1/admin/recordings": Operation("Named stretches of traffic."),
    "POST /v1/admin/recordings/start": Operation("Begin a recording.", recordings.Start, status=201),
    "POST /v1/admin/recordings/stop": Operation(
        "End the recording that runs.", recordings.Because, optional=True
    ),
    "POST /v1/admin/recordings/trim": Operation("Keep the last days of traffic only.", recordings.Trim),
    "GET /v1/admin/recordings/{recording}": Operation("One recording."),
    "DELETE /v1/admin/recordings/{recording}": Operation("Forget a recording."),
    "GET /v1/admin/recordings/{recording}/export": Operation(
        "A recording as a file.", query={"shareable": "true leaves out who asked for what"}, gives=None
    ),
    "POST /v1/admin/recordings/{recording}/import": Operation("Take in a recording, a file.", status=201),
    "POST /v1/admin/pause": Operation("Take nothing new.", admin.Because, told.PausedAll, optional=True),
    "POST /v1/admin/resume": Operation("As before.", admin.Because, told.PausedAll, optional=True),
    "GET /v1/admin/keys": Operation("Every key, without its secret.", gives=told.KeyList),
    "POST /v1/admin/keys": Operation("Make one.", keys.NewKey, told.KeyMade, status=201),
    "DELETE /v1/admin/keys/{key}": Operation(
        "It stops at once.", gives=told.KeyShown, query={"reason": "for the audit"}
    ),
    "GET /v1/admin/users": Operation("The console's users.", gives=told.UserList),
    "POST /v1/admin/users": Operation("Make one.", users.NewUser, told.UserShown, status=201),
    "DELETE /v1/admin/users/{user}": Operation(
        "Remove one; the user's sessions end at once.",
        gives=told.UserShown,
        query={"reason": "for the audit"},
    ),
    "POST /v1/admin/users/{user}/password": Operation(
        "Give a user another password.", users.Rekeyed, told.UserShown
    ),
    "POST /v1/admin/users/{user}/role": Operation("Give another role.", users.Reroled, told.UserShown),
}

OPERATIONS: Mapping[str, Operation] = {
    **_SERVER,
    **_NATIVE,
    **_OTHERS,
    **_BATCHES,
    **_JOBS,
    **{route.format(""): operation for route, operation in _TEI.items()},
    **{route.format("/tei/{model}"): operation for route, operation in _TEI.items()},
    "POST /tei/{model}": Operation(
        "Whatever the model is there for.", (tei.EmbedBody, tei.RerankBody, tei.PredictBody), list[Any]
    ),
    "GET /tei/{model}/health": Operation("Nothing, when the model can be asked.", gives=None),
    **_ADMIN,
}

RAW: Mapping[tuple[type, str], type | None] = {
    (bodies.EncodeParams, "options"): options.EncodeKnown,
    (bodies.ScoreBody, "options"): options.ScoreKnown,
    (bodies.ExtractParams, "options"): options.ExtractKnown,
    (bodies.GenerateBody, "options"): options.GenerateKnown,
    (rerank.RerankBody, "options"): options.ScoreKnown,
    (bodies.ExtractParams, "output_schema"): None,
    (items.ItemBody, "metadata"): None,
    (estimate.EstimateBody, "request"): None,
    (job_calls.JobBody, "options"): None,
}
"""Fields that stay bytes until their size is known, and what they are then read as; None is any map."""
