"""The command line of an SGLang server, computed from what the ledger grants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import field_validator

from engine.catalog import ModelSpec
from engine.entry import Many, Span, Strict
from engine.errors import ResourceExhausted
from engine.memory.footprint import Footprint

OVERHEAD = 1 << 30
"""Bytes on a card for the CUDA context, kernels and graphs of a server. Estimated, not measured here."""
POOL_TOKENS = 16_384
START_SECONDS = 600.0
RUNNING = 16
CHUNK = 2048
CEILING = 0.95
"""Of what is free at start: a driver's own growth needs the rest."""
ENVIRONMENT = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}


class ServerOptions(Strict):
    """`options` of a catalogue entry of this family."""

    max_total_tokens: Many = POOL_TOKENS
    """Tokens of prompts and answers that its KV holds together. Taken when it starts, used or not."""
    overhead_bytes: Many = OVERHEAD
    """On the card beside weights, KV and what a chunk of prompts takes."""
    start_seconds: Span = START_SECONDS
    arguments: tuple[str, ...] = ()
    """Further words of its command line, as `--attention-backend`, `triton`."""

    @field_validator("arguments")
    @classmethod
    def _not_ours(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for word in arguments:
            if word.partition("=")[0] in OURS:
                raise ValueError(f"{word.partition('=')[0]} is computed by the server; leave it out")
        return arguments


@dataclass(frozen=True, slots=True)
class Grant:
    """What a server may take, of which the ledger knows."""

    weights_bytes: int
    pool_tokens: int
    kv_bytes_per_token: int
    overhead_bytes: int
    """Context, graphs, and what a chunk of prompts takes."""

    @property
    def kv_bytes(self) -> int:
        return self.pool_tokens * self.kv_bytes_per_token

    @property
    def device_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.overhead_bytes

    @classmethod
    def of(cls, options: ServerOptions, alone: Footprint) -> Grant:
        """`alone`: what the model takes in our own process, a sequence's KV by the token."""
        return cls(
            weights_bytes=alone.weights_bytes,
            pool_tokens=options.max_total_tokens,
            kv_bytes_per_token=alone.kv_bytes_per_token,
            overhead_bytes=options.overhead_bytes + alone.workspace_base,
        )


def command(
    python: Path, spec: ModelSpec, path: Path, device: str, grant: Grant, free_bytes: int | None
) -> list[str]:
    """Without port and key, which change with each start. `free_bytes`: of the card; None where none is.

    Raises ResourceExhausted when less is free than was granted.
    """
    options = ServerOptions.model_validate(spec.options)
    kind, _, index = device.partition(":")
    running, chunk = str(running_of(spec)), str(chunk_of(spec))
    words = [str(python), "-m", "sglang.launch_server", "--host", "127.0.0.1"]
    words += _pairs(
        {
            "--model-path": str(path),
            "--served-model-name": spec.id,
            "--device": kind,
            "--base-gpu-id": index or "0",
            "--dtype": spec.dtype if kind == "cuda" else "float32",
            "--max-total-tokens": str(grant.pool_tokens),
            "--max-running-requests": running,
            "--chunked-prefill-size": chunk,
            "--max-prefill-tokens": chunk,
            "--cuda-graph-max-bs-decode": running,
            "--grammar-backend": "llguidance",
            "--log-level": "warning",
        }
    )
    words += ["--constrained-json-disable-any-whitespace", "--sleep-on-idle"]
    words += ["--enable-memory-saver", "--enable-weights-cpu-backup"]
    if free_bytes is not None:
        words += ["--mem-fraction-static", f"{_fraction(spec.id, grant, free_bytes):.4f}"]
    if spec.trust_remote_code:
        words.append("--trust-remote-code")
    return [*words, *options.arguments]


def running_of(spec: ModelSpec) -> int:
    return spec.limits.max_running or RUNNING


def chunk_of(spec: ModelSpec) -> int:
    return spec.limits.max_batch_cost or CHUNK


def _fraction(model: str, grant: Grant, free_bytes: int) -> float:
    """A share of what is free when it starts, weights included: a ceiling, since the pool is bounded."""
    if grant.device_bytes > free_bytes * CEILING:
        needed, free = grant.device_bytes >> 20, free_bytes >> 20
        text = f"SGLang needs {needed} MiB for {model}, and {free} MiB of the card are free."
        raise ResourceExhausted(text).after(10.0)
    return min(CEILING, grant.device_bytes / free_bytes)


def _pairs(flags: Mapping[str, str]) -> Sequence[str]:
    return [word for pair in flags.items() for word in pair]


OURS = frozenset(
    [
        *("--host", "--port", "--model-path", "--served-model-name", "--admin-api-key", "--api-key"),
        *("--device", "--base-gpu-id", "--dtype", "--max-total-tokens", "--mem-fraction-static"),
        *("--max-running-requests", "--chunked-prefill-size", "--max-prefill-tokens"),
        *("--enable-memory-saver", "--enable-weights-cpu-backup", "--sleep-on-idle"),
    ]
)
"""Flags that no entry may set."""
