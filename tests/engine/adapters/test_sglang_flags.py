from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.adapters.sglang_server.flags import Grant, ServerOptions, command
from engine.errors import ResourceExhausted
from tests.engine.adapters.sglang_world import entry

GIB = 1 << 30
GRANT = Grant(weights_bytes=4 * GIB, pool_tokens=16_384, kv_bytes_per_token=131_072, overhead_bytes=GIB)


def flags(device: str, free: int | None, **changes: object) -> dict[str, str]:
    """Each flag with the word after it."""
    path = Path("/models/one")
    words = command(Path("/env/bin/python"), entry(path, **changes), path, device, GRANT, free)
    assert words[:3] == ["/env/bin/python", "-m", "sglang.launch_server"]
    return {word: after for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


def test_the_pool_is_what_was_granted_and_the_share_of_the_card_is_its_ceiling():
    given = flags("cuda:1", 70 * GIB, dtype="bfloat16")

    assert given["--max-total-tokens"] == "16384"
    assert float(given["--mem-fraction-static"]) == pytest.approx(7 / 70, abs=1e-4)
    assert (given["--device"], given["--base-gpu-id"], given["--dtype"]) == ("cuda", "1", "bfloat16")
    assert given["--max-running-requests"] == given["--cuda-graph-max-bs-decode"] == "16"


def test_it_listens_to_this_machine_alone_and_can_give_its_memory_back():
    given = flags("cuda:0", 70 * GIB)

    assert given["--host"] == "127.0.0.1"
    assert {"--enable-memory-saver", "--enable-weights-cpu-backup", "--sleep-on-idle"} <= given.keys()


def test_where_less_is_free_than_was_granted_it_is_not_started():
    with pytest.raises(ResourceExhausted, match="needs 7168 MiB for tests/decoder, and 7168 MiB"):
        flags("cuda:0", 7 * GIB)


def test_an_entry_may_add_words_but_not_those_that_are_computed():
    assert "--attention-backend" in flags(
        "cuda:0", 70 * GIB, options={"arguments": ["--attention-backend", "triton"]}
    )
    with pytest.raises(ValidationError, match="--mem-fraction-static is computed"):
        ServerOptions.model_validate({"arguments": ["--mem-fraction-static=0.9"]})
