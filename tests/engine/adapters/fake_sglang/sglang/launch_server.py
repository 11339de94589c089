"""A server that answers in the shapes of SGLang 0.5.23 and dies where that dies.

It writes the bytes of its prompt backwards, a token every few milliseconds. What the prompt says
may be an order: see `ORDERS`. Orders that count are remembered in the model's directory, so that they
hold over a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

EOS = 257
STEP = 0.003
ORDERS = ("die once", "die always", "die in the middle", "slow")


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--host", "--model-path", "--served-model-name", "--device", "--dtype", "--admin-api-key"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--base-gpu-id", "--max-total-tokens", "--max-running-requests"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--chunked-prefill-size", "--max-prefill-tokens", "--cuda-graph-max-bs-decode"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--grammar-backend", "--log-level", "--fail-with", "--hold"):
        parser.add_argument(name)
    parser.add_argument("--mem-fraction-static", type=float)
    for name in (
        "--sleep-on-idle",
        "--enable-memory-saver",
        "--enable-weights-cpu-backup",
        "--constrained-json-disable-any-whitespace",
    ):
        parser.add_argument(name, action="store_true")
    return parser.parse_args()


class Fake:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.notes = Path(args.model_path)
        self.running: dict[str, asyncio.Event] = {}
        self.waiting = 0
        self.free = asyncio.Semaphore(args.max_running_requests)
        self.tokens = 0
        self.released: set[str] = set()

    def die(self) -> None:
        os.killpg(0, signal.SIGKILL)

    def note(self, name: str, text: str = "") -> bool:
        """Whether it was noted before."""
        path = self.notes / f"note {name}"
        with path.open("a") as file:
            file.write(text + "\n")
        return path.stat().st_size > len(text) + 1

    def admin(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.args.admin_api_key}":
            raise web.HTTPUnauthorized

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response()

    async def health(self, request: web.Request) -> web.Response:
        await asyncio.sleep(20)
        return web.Response(status=503)

    async def loads(self, request: web.Request) -> web.Response:
        rank = {
            "dp_rank": 0,
            "num_running_reqs": len(self.running),
            "num_waiting_reqs": self.waiting,
            "num_used_tokens": self.tokens,
            "max_total_num_tokens": self.args.max_total_tokens,
            "token_usage": self.tokens / self.args.max_total_tokens,
            "memory": {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0},
        }
        return web.json_response({"dp_rank_count": 1, "loads": [rank]})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.released:
            self.die()
        ids, sampling = body["input_ids"], body["sampling_params"]
        rid = body.get("rid") or f"own {id(body)}"
        text = bytes(token for token in ids if token < 256).decode("utf-8", "replace")
        self.note("sampling", json.dumps(sampling))
        if "refuse me" in text:
            return web.json_response({"error": {"message": "no such thing"}}, status=400)
        if "die always" in text or ("die once" in text and not self.note("died")):
            self.die()
        self.waiting += 1
        async with self.free:
            self.waiting -= 1
            self.running[rid] = asyncio.Event()
            need = len(ids) + sampling["max_new_tokens"]
            self.tokens += need
            self.note("most", str(self.tokens))
            try:
                return await self.answer(request, body, rid, text)
            finally:
                del self.running[rid]
                self.tokens -= need

    async def answer(self, request: web.Request, body: dict[str, Any], rid: str, text: str) -> Any:
        ids, sampling = body["input_ids"], body["sampling_params"]
        script = [token for token in reversed(ids) if token < 256] or [ord("x")]
        if not sampling.get("ignore_eos"):
            script.append(EOS)
        out: list[int] = []
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if body.get("stream"):
            await stream.prepare(request)
        finish: dict[str, Any] | None = None
        while finish is None:
            await asyncio.sleep(20 * STEP if "slow" in text else STEP)
            out.append(script[len(out)] if len(out) < len(script) else ord("."))
            if "die in the middle" in text and len(out) == 5:
                self.die()
            finish = self.finish(out, sampling, rid)
            if body.get("stream"):
                piece = self.piece(body, rid, out, finish)
                await stream.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        if not body.get("stream"):
            return web.json_response(self.piece(body, rid, out, finish))
        await stream.write(b"data: [DONE]\n\n")
        return stream

    def finish(self, out: list[int], sampling: dict[str, Any], rid: str) -> dict[str, Any] | None:
        if self.running[rid].is_set():
            return {"type": "abort", "message": "Aborted"}
        if out[-1] == EOS:
            return {"type": "stop", "matched": EOS}
        if any(stop.encode() in bytes(out) for stop in sampling.get("stop", ())):
            return {"type": "stop", "matched": sampling["stop"][0]}
        if len(out) == sampling["max_new_tokens"]:
            return {"type": "length", "length": len(out)}
        return None

    def piece(self, body: dict[str, Any], rid: str, out: list[int], finish: Any) -> dict[str, Any]:
        about = {
            "id": rid,
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(out),
            "cached_tokens": 0,
        }
        if body.get("return_logprob"):
            about["output_token_logprobs"] = [[-0.5, token, None] for token in out]
            top = [[-0.5, 65, None], [-1.5, 66, None]][: body["top_logprobs_num"]]
            about["output_top_logprobs"] = [top for _ in out]
        text = bytes(token for token in out if token < 256).decode("utf-8", "replace")
        return {"text": text, "output_ids": list(out), "meta_info": about}

    async def abort(self, request: web.Request) -> web.Response:
        self.admin(request)
        body = await request.json()
        self.note("aborted", json.dumps(body))
        for rid, gone in self.running.items():
            if body.get("abort_all") or rid == body.get("rid"):
                gone.set()
        return web.Response()

    async def flush(self, request: web.Request) -> web.Response:
        return web.Response(status=400 if self.running or self.waiting else 200)

    async def release(self, request: web.Request) -> web.Response:
        self.admin(request)
        tags = (await request.json()).get("tags") or ["kv_cache", "weights", "cuda_graph"]
        if self.running or self.waiting:
            self.die()
        self.released |= set(tags)
        self.note("released")
        return web.Response()

    async def resume(self, request: web.Request) -> web.Response:
        self.admin(request)
        tags = (await request.json()).get("tags") or ["kv_cache", "weights", "cuda_graph"]
        if not set(tags) <= self.released or (self.notes / "note never wake").exists():
            self.die()
        self.released -= set(tags)
        self.note("resumed")
        return web.Response()


def main() -> None:
    args = flags()
    assert os.environ["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    fake = Fake(args)
    fake.note("starts", str(os.getpid()))
    sys.stderr.write(f"server_args=ServerArgs(admin_api_key={args.admin_api_key!r})\n")
    sys.stderr.flush()
    if args.fail_with:
        raise ValueError(args.fail_with)
    if args.hold:
        # As the real one's scheduler: a process of its own.
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        fake.note("helper", str(helper.pid))
    app = web.Application()
    app.add_routes(
        [
            web.get("/ready", fake.ready),
            web.get("/health", fake.health),
            web.get("/v1/loads", fake.loads),
            web.post("/generate", fake.generate),
            web.post("/abort_request", fake.abort),
            web.post("/flush_cache", fake.flush),
            web.post("/release_memory_occupation", fake.release),
            web.post("/resume_memory_occupation", fake.resume),
        ]
    )
    web.run_app(app, host=args.host, port=args.port, print=None, handle_signals=False)


if __name__ == "__main__":
    main()
