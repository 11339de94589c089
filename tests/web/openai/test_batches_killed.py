"""A batch and a job on the real server, killed in the middle: they go on by themselves, and nothing is lost
or doubled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sie_sdk import SIEClient

from tests.acceptance.asking import MINILM
from tests.acceptance.serving import PATIENCE, serving
from tests.weights import weights

LINES, ITEMS = 300, 100


def line(number: int) -> str:
    body = {"model": MINILM, "input": f"line {number}"}
    return json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/embeddings", "body": body})


def test_a_batch_and_a_job_outlive_kill_9(tmp_path: Path):
    weights(MINILM)
    content = "\n".join(map(line, range(LINES)))

    with serving(tmp_path, memory="1GiB") as server:
        file = server.http.post("/v1/files", content=content).raise_for_status().json()
        asked = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        items = [{"id": f"i{number}", "text": f"item {number}"} for number in range(ITEMS)]
        wanted = {"operation": "encode", "model": MINILM, "items": items}
        job = f"/v1/jobs/{server.http.post('/v1/jobs', json=wanted).raise_for_status().json()['id']}"
        path = f"/v1/batches/{server.http.post('/v1/batches', json=asked).raise_for_status().json()['id']}"

        def batch() -> dict[str, Any]:
            return server.http.get(path).raise_for_status().json()

        server.until(lambda: batch()["request_counts"]["completed"] > 0)
        assert batch()["status"] == "in_progress"
        inputs = {each["id"] for each in server.http.get("/v1/files").raise_for_status().json()["data"]}
        server.process.kill()
        server.process.wait(PATIENCE)
    before = sum(
        found.read_bytes().count(b"\n")
        for found in (tmp_path / "state" / "files").iterdir()
        if found.name not in inputs
    )

    with serving(tmp_path, memory="1GiB") as server:
        server.until(lambda: batch()["status"] == "completed")
        output = server.http.get(f"/v1/files/{batch()['output_file_id']}/content").raise_for_status().text

        server.until(lambda: server.http.get(job).raise_for_status().json()["finished_at"])
        with SIEClient(server.url) as client:
            results = client.jobs.results(job.rpartition("/")[2])
        assert batch()["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        assert server.total("serai_requests_total") <= LINES + ITEMS - before
    answered = [json.loads(each)["custom_id"] for each in output.splitlines()]
    assert sorted(answered) == sorted(f"c{number}" for number in range(LINES))
    assert [item["id"] for item in results["items"]] == [f"i{number}" for number in range(ITEMS)]
    assert results["state"] == "succeeded" and results["dims"] == 384
    assert 0 < before < LINES + ITEMS
