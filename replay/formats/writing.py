"""A trace in other forms: our own recording, AIPerf's Mooncake lines, targets of vegeta and of k6."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine import __version__
from engine.records import files
from engine.requests import Task
from replay.trace import NO_SESSION, UNSAID, BadTrace, Trace
from replay.words import text

ENDINGS: Mapping[str, str] = {
    "recording": ".jsonl.gz",
    "mooncake": ".mooncake.jsonl",
    "vegeta": ".targets.jsonl",
    "k6": ".k6.json",
}

BLOCK = 512
"""Tokens of one of Mooncake's blocks."""


def write(trace: Trace, out: Path, form: str, target: str) -> None:
    """`target` is the server's address in the forms that name one."""
    match form:
        case "recording":
            with gzip.open(out, "wt", encoding="utf-8") as packed:
                packed.writelines(_lines(_recording(trace)))
        case "mooncake":
            out.write_text("".join(_lines(_mooncake(trace))), "utf-8")
        case "vegeta":
            out.write_text("".join(_lines(_vegeta(trace, target))), "utf-8")
        case "k6":
            out.write_text(json.dumps([*_calls(trace, target)], indent=1), "utf-8")
        case _:
            raise BadTrace(f"There is no form {form!r}; there are {', '.join(ENDINGS)}.")


def _lines(found: Iterator[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(line) + "\n" for line in found)


def _recording(trace: Trace) -> Iterator[dict[str, Any]]:
    """As the engine's own files: whatever a trace does not say is left out."""
    yield {
        "serai_recording": files.VERSION,
        "name": trace.name,
        "started_at": trace.started,
        "seconds": trace.span,
        "closed": "imported",
        "seed": 0,
        "server": __version__,
        "snapshot": {},
    }
    for row in range(len(trace)):
        made: dict[str, Any] = {
            "is": "request",
            "at": round(float(trace.arrived[row]), 6),
            "request": f"r{row}",
            "model": trace.models[trace.model[row]],
            "service_class": int(trace.service_class[row]),
            "outcome": "ok",
            "input_tokens": int(trace.input_size[row]),
            "output_tokens": int(trace.output_size[row]),
        }
        if trace.session[row] != NO_SESSION:
            made["session"] = f"s{trace.session[row]}"
        if (code := int(trace.kind[row])) != UNSAID:
            kind = trace.kinds[code]
            made |= {"task": kind.task, "costs": ",".join(map(str, kind.costs)), "kv_tokens": kind.kv_tokens}
        yield made
    yield {"is": "end", "rows": {"request": len(trace)}}


def _mooncake(trace: Trace) -> Iterator[dict[str, Any]]:
    """Milliseconds and tokens. Nobody knows which prompts begin alike: every block is its own."""
    blocks = 0
    for row in range(len(trace)):
        size = max(1, int(trace.input_size[row]))
        count = -(-size // BLOCK)
        made: dict[str, Any] = {
            "timestamp": round(float(trace.arrived[row]) * 1000),
            "input_length": size,
            "output_length": max(1, int(trace.output_size[row])),
            "hash_ids": list(range(blocks, blocks + count)),
        }
        if trace.session[row] != NO_SESSION:
            made["session_id"] = f"s{trace.session[row]}"
        blocks += count
        yield made


def _vegeta(trace: Trace, target: str) -> Iterator[dict[str, Any]]:
    """`vegeta attack -format=json -lazy`. It keeps a rate of its own: of the trace only the order is kept."""
    for call in _calls(trace, target):
        body = base64.b64encode(json.dumps(call["body"]).encode()).decode()
        header = {"Content-Type": ["application/json"], "Accept": ["application/json"]}
        yield {"method": "POST", "url": call["url"], "header": header, "body": body}


def _calls(trace: Trace, target: str) -> Iterator[dict[str, Any]]:
    """Each call with its moment, `at` in seconds, as a k6 script can read it with `open`."""
    for row in range(len(trace)):
        code = int(trace.kind[row])
        task = trace.kinds[code].task if code != UNSAID else Task.ENCODE.value
        costs = (trace.kinds[code].costs if code != UNSAID else ()) or (int(trace.input_size[row]),)
        rng = random.Random(row)
        texts = [text(cost, rng) for cost in costs]
        body: dict[str, Any] = {"items": [{"text": each} for each in texts]}
        if task == Task.SCORE:
            body["query"] = {"text": text(8, rng)}
        if task == Task.GENERATE:
            body = {"prompt": texts[0], "max_new_tokens": max(1, int(trace.output_size[row]))}
        model = quote(trace.models[trace.model[row]], safe="/:@")
        at = round(float(trace.arrived[row]), 6)
        yield {"at": at, "url": f"{target.rstrip('/')}/v1/{task}/{model}", "body": body}
