"""The reference: valid, whole, and true: what it says of answers and bodies is what the server does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import ClientSession
from aiohttp.web import RouteDef
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from yarl import URL

from engine.chosen import Chance, Chosen
from engine.requests import Encoded, Generated, Response, Usage
from tests.web.conftest import serving
from tests.web.fakes import TIMING, FakeEngine
from web.app import ROUTES
from web.openapi import operations, routes
from web.openapi.document import document

pytestmark = pytest.mark.anyio
JSON = {"Accept": "application/json"}
USER = {"role": "user", "content": "a"}
DESCRIBED = ("/v1/", "/v2/", "/tei/", "/embed", "/rerank", "/predict", "/tokenize", "/decode", "/info")

CALLS: dict[str, dict[str, Any]] = {
    "/v1/encode/fake/encoder": {"items": [{"text": "a"}, {"text": "b", "id": "x"}]},
    "/v1/score/fake/reranker": {"query": {"text": "q"}, "items": [{"text": "a"}]},
    "/v1/extract/fake/extractor": {"items": [{"text": "a", "metadata": {"a": 1}}], "params": {"labels": []}},
    "/v1/generate/fake/writer": {"prompt": "a", "options": {"raw": True}},
    "/v1/estimate": {"task": "encode", "model": "fake/encoder", "items": [{"text": "a"}]},
    "/v1/rerank": {"model": "fake/reranker", "query": "a", "documents": ["a"], "return_documents": True},
    "/v2/rerank": {"model": "fake/reranker", "query": "a", "documents": [{"text": "a"}], "top_n": 1},
    "/v1/embeddings": {"model": "fake/encoder", "input": "a"},
    "/v1/chat/completions": {"model": "fake/writer", "messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"model": "fake/writer", "prompt": ["a", "b"]},
    "/v1/responses": {"model": "fake/writer", "input": "a", "instructions": "b"},
    "/v1/pools": {"name": "p"},
    "/tei/fake/encoder/embed": {"inputs": "a"},
    "/tei/fake/encoder/embed_all": {"inputs": ["a"]},
    "/tei/fake/encoder/embed_sparse": {"inputs": [[1, 2], [3]]},
    "/tei/fake/encoder/tokenize": {"inputs": "a b"},
    "/tei/fake/encoder/decode": {"ids": [1, 2]},
    "/tei/fake/encoder": {"inputs": "a"},
    "/tei/fake/reranker/rerank": {"query": "a", "texts": ["a"], "return_text": True},
    "/tei/fake/reranker/predict": {"inputs": [["a", "b"]]},
}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """As it is served."""
    return msgspec.json.decode(msgspec.json.encode(document(routes.of(ROUTES), "1", "")))


def known() -> list[RouteDef]:
    return [route for route in ROUTES if isinstance(route, RouteDef)]


def documented(reference: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in reference["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def template(path: str, reference: dict[str, Any]) -> str:
    """The documented path that a real one belongs to; the most exact where several do."""
    fits = [p for p in reference["paths"] if re.fullmatch(re.sub(r"{\w+}", "(.+)", p), path)]
    return max(fits, key=lambda p: len(re.sub(r"{\w+}", "", p)))


def valid(schema: dict[str, Any], value: object, reference: dict[str, Any]) -> None:
    Draft202012Validator({**schema, "components": reference["components"]}).validate(value)


def test_it_is_valid_openapi(reference):
    validate(reference)
    assert reference["openapi"] == "3.1.0"


def test_every_route_is_in_it_and_it_has_no_other(reference):
    bare = {(route.method, re.sub(r"{(\w+)(:[^}]*)?}", r"{\1}", route.path)) for route in known()}

    assert {(method, path) for method, path, _ in documented(reference)} == bare


def test_every_route_of_an_api_says_what_it_takes_and_nothing_that_is_gone_is_described():
    names = [route.name for route in routes.of(ROUTES)]
    silent = [n for n in names if n.split()[1].startswith(DESCRIBED) and n not in operations.OPERATIONS]

    assert silent == []
    assert sorted(operations.OPERATIONS.keys() - set(names)) == []


def test_ids_are_unique_and_every_variable_of_a_path_is_a_parameter(reference):
    ids = [operation["operationId"] for _, _, operation in documented(reference)]
    assert len(set(ids)) == len(ids)
    for _, path, operation in documented(reference):
        inside = [p["name"] for p in operation["parameters"] if p.get("in") == "path"]
        assert inside == re.findall(r"{(\w+)}", path)


def test_each_api_tells_errors_in_its_own_form(reference):
    told = {
        path: operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"]
        for _, path, operation in documented(reference)
    }
    expected = {
        "/v1/encode/{model}": "ErrorAnswer",
        "/v1/rerank": "CohereError",
        "/v1/embeddings": "OpenAIError",
        "/embed": "TeiError",
        "/tei/{model}/rerank": "TeiError",
    }
    for path, name in expected.items():
        assert told[path].endswith(f"/{name}")


def test_options_that_a_body_holds_back_are_described_and_those_that_are_refused_are_not(reference):
    schemas = reference["components"]["schemas"]

    assert schemas["EncodeParams"]["properties"]["options"] == {"$ref": "#/components/schemas/EncodeKnown"}
    assert "dimensions" in schemas["EncodeKnown"]["properties"]
    assert "muvera" not in schemas["EncodeKnown"]["properties"]


@pytest.mark.parametrize("path", CALLS)
async def test_what_is_sent_and_answered_is_as_it_is_described(http, reference, path):
    operation = reference["paths"][template(path, reference)]["post"]

    async with http.post(path, json=CALLS[path], headers=JSON) as answer:
        said, status = await answer.json(), answer.status

    assert status == 200, said
    valid(operation["requestBody"]["content"]["application/json"]["schema"], CALLS[path], reference)
    valid(operation["responses"]["200"]["content"]["application/json"]["schema"], said, reference)


@pytest.mark.parametrize("path", CALLS)
async def test_a_body_that_is_wrong_is_told_so_as_it_is_described(http, reference, path):
    operation = reference["paths"][template(path, reference)]["post"]

    async with http.post(path, json={"items": 3, "inputs": {}, "documents": 3}, headers=JSON) as answer:
        said, status = await answer.json(), answer.status

    assert 400 <= status < 500
    valid(operation["responses"]["default"]["content"]["application/json"]["schema"], said, reference)


async def test_what_only_some_answers_of_openai_s_routes_have_is_described_too(http, engine, reference):
    chosen = (Chosen(Chance(b"a", -0.5), (Chance(b"b", -1.0),)),)
    called = Generated('<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>', "stop", (), chosen)
    spent = Usage(input_tokens=3, output_tokens=1, images=1, truncated=1)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    vector = Encoded(dense=np.zeros(2, np.float32))
    asked = {
        "/v1/chat/completions": (called, {"messages": [USER], "tools": [tool], "logprobs": True}),
        "/v1/completions": (called, {"prompt": "a", "logprobs": 1}),
        "/v1/responses": (Generated("a", "length"), {"input": "a"}),
        "/v1/embeddings": (vector, {"input": "a", "encoding_format": "base64"}),
    }
    for path, (output, body) in asked.items():
        engine.answer = lambda request, output=output: Response(request.model, (output,), spent, TIMING)
        model = "fake/encoder" if path == "/v1/embeddings" else "fake/writer"
        async with http.post(path, json={"model": model, **body}) as answer:
            said = await answer.json()
        given = reference["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]
        valid(given["schema"], said, reference)
        assert path != "/v1/chat/completions" or said["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/v1/pools"),
        ("get", "/v1/pools/{pool}"),
        ("post", "/v1/pools/{pool}/renew"),
        ("delete", "/v1/pools/{pool}"),
        ("get", "/v1/admin/audit"),
        ("get", "/v1/admin/models/{model}"),
        ("post", "/v1/admin/models/{model}/{action}"),
        ("post", "/v1/admin/catalog/reload"),
        ("post", "/v1/admin/pause"),
        ("get", "/v1/admin/keys"),
        ("get", "/v1/admin/users"),
    ],
)
async def test_what_operators_do_and_see_is_as_it_is_described(http, reference, method, path):
    schema = reference["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    async with http.post("/v1/pools", json={"name": "p"}):
        pass
    async with http.post("/v1/admin/pause"):
        pass

    real = path.format(pool="p", model="fake/encoder", action="load")
    async with http.request(method, real) as answer:
        said = await answer.json()

    assert schema and answer.status == 200, said
    valid(schema, said, reference)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{model}", "/tei/{model}/info"])
async def test_what_is_looked_at_is_as_it_is_described(http, reference, path):
    schema = reference["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

    async with http.get(path.replace("{model}", "fake/encoder")) as answer:
        valid(schema, await answer.json(), reference)


async def test_a_model_s_slash_may_be_escaped_as_generated_clients_do(http):
    path = URL("/v1/encode/fake%2Fencoder", encoded=True)
    async with http.post(path, json={"items": [{"text": "a"}]}, headers=JSON) as answer:
        assert answer.status == 200


async def test_it_is_served_below_a_base_path_too_and_says_so():
    engine = FakeEngine()
    engine.settings = engine.settings.model_copy(update={"base_path": "/serai"})
    async with serving(engine) as url, ClientSession(url) as session:
        async with session.get("/serai/openapi.json") as answer:
            served = await answer.json()
        async with session.get("/serai/docs/api") as answer:
            page = await answer.text()

    assert served["servers"] == [{"url": "/serai"}]
    assert len(served["paths"]) == len(document(routes.of(ROUTES), "1", "")["paths"])
    assert 'href="/serai/static/reference.css"' in page


async def test_the_page_has_every_route_and_leads_to_every_type_without_a_script(http, reference):
    async with http.get("/docs/api") as answer:
        page = await answer.text()
        assert (answer.status, answer.content_type) == (200, "text/html")

    for _, path, operation in documented(reference):
        assert f'id="{operation["operationId"]}"' in page
        assert f"<code>{path}</code>" in page
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors
    assert "<script" not in page and "style=" not in page
    assert "http://" not in page and "https://" not in page


async def test_a_number_that_could_not_be_said_again_is_refused(http):
    """What a generated client may send where the reference says a whole number."""
    async with http.post("/v1/pools", json={"name": "p", "gpus": {"l4": 2**64}}) as answer:
        assert answer.status == 400
