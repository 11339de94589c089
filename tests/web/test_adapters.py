"""Adapters as operators see them over HTTP: by name, with a line in the ledger and a place in the listing."""

from __future__ import annotations

import pytest

from tests.simulation import MIB
from tests.web.test_admin import FAST, entry, operated, told

pytestmark = pytest.mark.anyio

LORAS = {"legal": {"sources": [{"directory": "/"}]}}


async def test_an_adapter_is_loaded_pinned_and_unloaded_and_is_a_line_of_the_ledger(tmp_path):
    options = {**FAST, "weights_bytes": 100 * MIB, "lora_bytes": 3 * MIB, "lora_seconds": 0.01}
    async with operated(tmp_path, entry("a", options=options, loras=LORAS)) as http:

        async def post(path, **said):
            async with http.post(path, json=said) as response:
                return await told(response)

        async def get(path):
            async with http.get(path) as response:
                return await response.json()

        body = {"items": [{"text": "x"}], "params": {"options": {"lora_id": "legal"}}}
        status, _ = await post("/v1/encode/a", **body)
        (device,) = (await get("/v1/admin/devices"))["devices"]
        listed = await get("/v1/models/a")
        assert status == 200
        assert {u["unit"]: u["weights_bytes"] for u in device["units"]} == {
            "a": 100 * MIB,
            "a:legal": 3 * MIB,
        }
        assert device["lines"]["weights"] == 103 * MIB
        assert [r["unit"] for r in listed["residencies"]] == ["a", "a:legal"]

        status, pinned = await post("/v1/admin/models/a:legal/pin", reason="demo")
        assert (status, pinned["residencies"][1]["pinned"]) == (200, True)
        status, refused = await post("/v1/admin/models/a/unload")
        assert (status, refused["code"]) == (400, "INVALID_INPUT") and "a:legal is pinned" in refused[
            "message"
        ]
        status, refused = await post("/v1/admin/models/a:legal/pause")
        assert (status, refused["code"]) == (400, "INVALID_INPUT")
        assert (await post("/v1/admin/models/a:legal/unpin"))[0] == 200
        status, gone = await post("/v1/admin/models/a:legal/unload")
        assert (status, [r["unit"] for r in gone["residencies"]]) == (200, ["a"])
