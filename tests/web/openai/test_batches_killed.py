"""A batch on the real server, killed in the middle: it goes on by itself, and no line is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.asking import MINILM
from tests.acceptance.serving import PATIENCE, serving
from tests.weights import weights

LINES = 300


def line(number: int) -> str:
    body = {"model": MINILM, "input": f"line {number}"}
    return json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/embeddings", "body": body})


def test_a_batch_outlives_kill_9(tmp_path: Path):
    weights(MINILM)
    content = "\n".join(map(line, range(LINES)))

    with serving(tmp_path, memory="1GiB") as server:
        file = server.http.post("/v1/files", content=content).raise_for_status().json()
        asked = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        path = f"/v1/batches/{server.http.post('/v1/batches', json=asked).raise_for_status().json()['id']}"

        def batch() -> dict[str, Any]:
            return server.http.get(path).raise_for_status().json()

        server.until(lambda: batch()["request_counts"]["completed"] > 0)
        assert batch()["status"] == "in_progress"
        server.process.kill()
        server.process.wait(PATIENCE)
    before = sum(
        found.read_bytes().count(b"\n")
        for found in (tmp_path / "state" / "files").iterdir()
        if found.name != file["id"]
    )

    with serving(tmp_path, memory="1GiB") as server:
        server.until(lambda: batch()["status"] == "completed")
        output = server.http.get(f"/v1/files/{batch()['output_file_id']}/content").raise_for_status().text

        assert batch()["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        assert server.total("serai_requests_total") <= LINES - before
    answered = [json.loads(each)["custom_id"] for each in output.splitlines()]
    assert sorted(answered) == sorted(f"c{number}" for number in range(LINES))
    assert 0 < before < LINES
