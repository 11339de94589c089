from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from engine.adapters import causal_lm
from engine.adapters.family import GenerativeModel, Parkable, Progressed, Sleeping
from engine.adapters.sglang import FAMILY
from engine.adapters.sglang_server import server as servers
from engine.adapters.sglang_server.flags import ENVIRONMENT, Grant, command
from engine.adapters.sglang_server.model import Served
from engine.errors import InferenceFailed, InputTooLong, InvalidInput, LoadFailed, RunnerCrashed
from engine.requests import Generated, GenerateOptions, Grammar, Item, Task
from tests.engine.adapters.sglang_world import alive, entry, family, notes, prepare, python, run, until
from tests.engine.adapters.tiny_decoders import CONFIGS, save, spec

ROOT = Path(__file__).parents[3]
REAL = transformers.LlamaConfig(
    vocab_size=258,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=4096,
    bos_token_id=None,
    eos_token_id=257,
)
"""Heads of 64, which its attention kernels have."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("llama"), CONFIGS["llama"])


@pytest.fixture
def llama(weights: Path, tmp_path: Path) -> Path:
    """A model directory of its own, since the fake writes its notes there."""
    made = tmp_path / "model"
    made.mkdir()
    for file in weights.iterdir():
        (made / file.name).symlink_to(file)
    return made


@pytest.fixture
def model(llama: Path, tmp_path: Path) -> Iterator[Served]:
    loaded = family(tmp_path).load(entry(llama), llama, "cpu")
    yield loaded
    loaded.unload()


@pytest.fixture(scope="module")
def lasting(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Served]]:
    """A model for tests that leave it as it was, and its directory."""
    path = save(tmp_path_factory.mktemp("lasting"), CONFIGS["llama"])
    loaded = family(path).load(entry(path), path, "cpu")
    yield path, loaded
    loaded.unload()


def answer(said: list[Progressed]) -> Generated:
    """The whole answer, which is also what its pieces come to."""
    done = said[-1].done
    assert isinstance(done, Generated), done
    assert "".join(told.text for told in said) == done.text
    assert sum(told.tokens for told in said) == len(done.token_ids)
    return done


def test_it_is_a_model_that_generates_and_sleeps_and_is_not_parked(lasting):
    _, model = lasting
    assert isinstance(model, GenerativeModel) and isinstance(model, Sleeping)
    assert not isinstance(model, Parkable)


def test_an_answer_comes_in_pieces_and_ends_with_the_models_own_end(lasting):
    llama, model = lasting
    (said,) = run(model, {"a": prepare(llama, "hello")}).values()

    done = answer(said)
    assert (done.text, done.finish_reason) == ("olleh", "stop")
    assert model.advance({}, (), 0.0) == {}


def test_sixteen_streams_with_their_own_lengths_and_stops_each_get_their_own(lasting):
    llama, model = lasting
    texts = {f"s{n}": f"text number {n} of sixteen" for n in range(16)}
    jobs = {job: prepare(llama, text, max_new_tokens=5 + int(job[1:])) for job, text in texts.items()}
    jobs["s15"] = prepare(llama, texts["s15"], stop=("fo",))

    said = run(model, jobs)

    for job, text in texts.items():
        expected = text[::-1][: 5 + int(job[1:])] if job != "s15" else "neetxis "
        assert answer(said[job]).text == expected, job
        assert answer(said[job]).finish_reason == ("stop" if job == "s15" else "length")


def test_what_is_sent_is_what_the_caller_asked(lasting):
    llama, model = lasting
    grammar = Grammar("regex", "[a-z]+")
    asked = prepare(
        llama, "ab", temperature=0.7, top_p=0.9, seed=5, stop=("zz",), logit_bias={7: 1.5}, grammar=grammar
    )
    run(model, {"a": asked, "b": prepare(llama, "cd", grammar=Grammar("json_schema", '{"type": "object"}'))})

    sent = [json.loads(note) for note in notes(llama, "sampling")[-2:]]  # by two threads
    second, first = sorted(sent, key=lambda sampling: sampling["temperature"])
    assert (
        first
        | {
            "temperature": 0.7,
            "top_p": 0.9,
            "sampling_seed": 5,
            "stop": ["zz"],
            "logit_bias": {"7": 1.5},
            "regex": "[a-z]+",
        }
        == first
    )
    assert second["json_schema"] == '{"type": "object"}' and second["temperature"] == 0.0


def test_the_chances_of_tokens_are_told_with_their_text(lasting):
    llama, model = lasting
    (said,) = run(model, {"a": prepare(llama, "hey", top_logprobs=2)}).values()

    chosen = answer(said).chosen
    assert [each.chance.spelled for each in chosen] == [b"y", b"e", b"h"]
    assert [(top.spelled, top.logprob) for top in chosen[0].top] == [(b"A", -0.5), (b"B", -1.5)]
    assert sum((told.chosen for told in said), ()) == chosen


def test_whoever_leaves_is_aborted_and_the_others_go_on(lasting):
    llama, model = lasting
    jobs = {"a": prepare(llama, "slow " * 20), "b": prepare(llama, "the other one")}
    model.advance(jobs, (), 0.1)

    assert set(model.advance({}, ["a"], 0.05)) <= {"b"}

    until(lambda: any("rid" in json.loads(note) for note in notes(llama, "aborted")))
    run(model, {})
    until(lambda: model._server.wire.loads().running == 0)


def test_no_more_is_sent_than_the_pool_holds_and_all_are_answered(llama, tmp_path):
    loaded = family(tmp_path).load(entry(llama, pool=100), llama, "cpu")
    jobs = {f"s{n}": prepare(llama, "word " * 4, max_new_tokens=20) for n in range(6)}
    try:
        said = run(loaded, jobs)
    finally:
        loaded.unload()

    assert {answer(each).text for each in said.values()} == {("word " * 4)[::-1]}
    assert max(map(int, notes(llama, "most"))) == 80


def test_an_input_that_it_refuses_fails_alone(lasting):
    llama, model = lasting
    said = run(model, {"a": prepare(llama, "refuse me"), "b": prepare(llama, "fine")})

    assert isinstance(said["a"][-1].done, InvalidInput) and "no such thing" in said["a"][-1].done.message
    assert answer(said["b"]).text == "enif"


def test_a_server_that_dies_before_the_first_token_is_restarted_and_nobody_notices(llama, model):
    said = run(model, {"a": prepare(llama, "die once"), "b": prepare(llama, "me too")})

    assert answer(said["a"]).text == "ecno eid" and answer(said["b"]).text == "oot em"
    assert len(notes(llama, "starts")) == 2


def test_a_server_that_dies_in_the_middle_of_an_answer_fails_that_and_the_next_is_served(llama, model):
    jobs = {"a": prepare(llama, "die in the middle, slow")}
    said = run(model, jobs)["a"]

    assert isinstance(said[-1].done, RunnerCrashed)
    assert "".join(told.text for told in said) == "wols "[: len("".join(told.text for told in said))]
    assert answer(run(model, {"b": prepare(llama, "next")})["b"]).text == "txen"


def test_an_input_that_kills_every_server_is_not_tried_for_ever(llama, model, monkeypatch):
    monkeypatch.setattr(servers, "PAUSES", (0.0, 0.0, 0.0))

    said = run(model, {"a": prepare(llama, "die always")})["a"]

    assert isinstance(said[-1].done, InferenceFailed) and "twice" in said[-1].done.message
    assert len(notes(llama, "starts")) == 2


def test_one_that_died_while_nobody_asked_is_restarted_for_the_next(llama, model):
    first = int(notes(llama, "starts")[0])
    os.killpg(first, signal.SIGKILL)
    until(lambda: model._server.wire is None)

    assert answer(run(model, {"a": prepare(llama, "again")})["a"]).text == "niaga"


def test_one_that_cannot_be_brought_back_is_given_up_with_a_time_to_come_again(llama, model, monkeypatch):
    monkeypatch.setattr(servers, "PAUSES", (0.0, 0.0, 0.0))
    plan = model._server._plan
    broken = replace(plan, command=lambda: [*plan.command(), "--fail-with", "no card"])
    monkeypatch.setattr(model._server, "_plan", broken)
    os.killpg(int(notes(llama, "starts")[0]), signal.SIGKILL)
    until(lambda: model._server.wire is None)

    error = run(model, {"a": prepare(llama, "again")})["a"][-1].done

    assert isinstance(error, LoadFailed) and "no card" in error.message and error.retry_after


def test_it_sleeps_when_nothing_runs_and_answers_again_when_it_wakes(llama, model):
    model.advance({"a": prepare(llama, "slow " * 20)}, (), 0.1)
    model.advance({}, ["a"], 0.0)

    kept = model.sleep()

    assert kept == causal_lm.FAMILY.footprint(spec(llama), llama).weights_bytes
    assert notes(llama, "released") == [""] and notes(llama, "resumed") == []
    model.wake()
    assert answer(run(model, {"b": prepare(llama, "awake")})["b"]).text == "ekawa"
    assert len(notes(llama, "starts")) == 1


def test_one_that_does_not_wake_is_started_anew(llama, model):
    model.sleep()
    (llama / "note never wake").touch()

    model.wake()

    assert answer(run(model, {"b": prepare(llama, "awake")})["b"]).text == "ekawa"
    assert len(notes(llama, "starts")) == 2


def test_one_whose_bytes_do_not_come_free_is_ended(llama, model, monkeypatch):
    monkeypatch.setattr(type(model._server._meter), "held", lambda self, pids: 1 << 30)
    pids = model.pids

    with pytest.raises(LoadFailed, match="gave back 0 MiB"):
        model.sleep()

    assert pids and not any(map(alive, pids))


def test_a_server_that_does_not_start_says_why_and_not_its_key(llama, tmp_path):
    broken = entry(llama, arguments=("--fail-with", "out of everything"))

    with pytest.raises(LoadFailed, match="ended with code 1 while it started") as told:
        family(tmp_path).load(broken, llama, "cpu")

    assert "out of everything" in told.value.message
    assert "admin_api_key='...'" in told.value.message


def test_without_an_environment_the_error_says_how_to_get_one(llama):
    with pytest.raises(LoadFailed, match="serai backends install sglang"):
        FAMILY.load(entry(llama), llama, "cpu")


def test_an_interpreter_that_is_not_there_is_a_load_that_failed(llama, tmp_path):
    with pytest.raises(LoadFailed, match="No such file"):
        FAMILY.beside(tmp_path / "nowhere").load(entry(llama), llama, "cpu")


def test_its_footprint_is_weights_pool_and_overhead(llama):
    alone = causal_lm.FAMILY.footprint(spec(llama), llama)

    small, large = (FAMILY.footprint(entry(llama, pool=tokens), llama) for tokens in (1000, 3000))

    assert large.weights_bytes - small.weights_bytes == 2000 * alone.kv_bytes_per_token
    assert small.weights_bytes > alone.weights_bytes + 1000 * alone.kv_bytes_per_token
    assert small.kv_bytes_per_token == 0


def test_a_prompt_longer_than_the_pool_and_a_lark_grammar_are_refused(llama):
    preparer = FAMILY.preparer(entry(llama, pool=10), llama)

    (long,) = preparer.prepare(Task.GENERATE, [Item(text="x" * 11)], GenerateOptions(raw=True))

    assert isinstance(long, InputTooLong)
    with pytest.raises(InvalidInput, match="Lark"):
        preparer.prepare(
            Task.GENERATE, [Item(text="x")], GenerateOptions(grammar=Grammar("lark", 'start: "a"'))
        )


def test_unloading_leaves_no_process(llama, tmp_path):
    loaded = family(tmp_path).load(entry(llama, arguments=("--hold", "yes")), llama, "cpu")
    pids = loaded.pids
    assert len(pids) >= 2 and int(notes(llama, "helper")[0]) in pids

    loaded.unload()

    assert not any(map(alive, pids))


def test_nothing_is_left_when_this_server_is_killed(llama, tmp_path):
    made, grant = entry(llama, arguments=("--hold", "yes")), Grant(1, 100, 1, 1)
    words = [
        *command(python(tmp_path), made, llama, "cpu", grant, None),
        "--port",
        "0",
        "--admin-api-key",
        "k",
    ]
    program = (
        "import sys, time\n"
        "from engine.adapters.sglang_server.process import Process\n"
        f"process = Process({words!r}, {dict(ENVIRONMENT)!r}, 'k')\n"
        "while len(process.pids) < 2:\n"
        "    time.sleep(0.02)\n"
        "sys.stdout.write(' '.join(map(str, process.pids)) + '\\n')\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) >= 2 and all(map(alive, pids))

        parent.kill()
        parent.wait()

        until(lambda: not any(map(alive, pids)))


def test_of_its_log_nothing_is_kept_that_may_be_of_a_request(lasting):
    _, model = lasting
    process = model._server._process

    assert process._kept('  File "x.py", line 3, in f') == '  File "x.py", line 3, in f'
    assert process._kept("ValueError: the text was: secret words") == "ValueError"
    assert process._kept("request: secret words") == ""


def test_an_unload_in_the_middle_of_answers_ends_at_once(llama, model):
    model.advance({"a": prepare(llama, "slow " * 20)}, (), 0.05)
    pids, began = model.pids, time.monotonic()

    model.unload()

    assert not any(map(alive, pids)) and time.monotonic() - began < 8


@pytest.mark.skipif(
    not (torch.cuda.is_available() and os.environ.get("SERAI_SGLANG_PYTHON")),
    reason="needs a card, and SERAI_SGLANG_PYTHON: an interpreter that has SGLang",
)
def test_the_real_server_answers_sleeps_and_answers_the_same_again(tmp_path):
    path = save(tmp_path / "real", REAL)
    made = entry(path, devices=("cuda",), dtype="float16", options={"start_seconds": 300.0})
    loaded = FAMILY.beside(Path(os.environ["SERAI_SGLANG_PYTHON"])).load(made, path, "cuda:0")
    try:
        first = answer(run(loaded, {"a": prepare(path, "hello", max_new_tokens=20)}, 60.0)["a"])
        loaded.sleep()
        loaded.wake()
        second = answer(run(loaded, {"b": prepare(path, "hello", max_new_tokens=20)}, 60.0)["b"])
    finally:
        loaded.unload()

    assert first.token_ids and first == second
