"""`serai call` as a user types it, against a real socket: texts, files, pipes, lines, and what goes wrong."""

from __future__ import annotations

import base64
import json
import socket
import sys
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner

from engine.catalog import Catalog
from engine.errors import InvalidInput, QueueFull
from engine.requests import Delta, ExtractOptions, Generated, Request, Response, Task, Usage
from tests.web.fakes import TIMING, respond, spec, vector
from web.calling import lines
from web.cli import serai as commands

pytestmark = pytest.mark.anyio
INT8 = '{"params": {"output_dtype": "int8"}}'
SERAI = str(Path(sys.executable).with_name("serai"))


async def serai(url: str, *arguments: object, stdin: bytes = b"") -> CompletedProcess[bytes]:
    """In this process, but for lines from standard input: those are read from the process's own."""
    typed = ["call", *map(str, arguments), "--url", url]
    if "--jsonl" in typed and "--file" not in typed:
        return await anyio.run_process([SERAI, *typed], input=stdin, check=False)
    done = await to_thread.run_sync(lambda: CliRunner().invoke(commands, typed, input=stdin))
    return CompletedProcess(typed, done.exit_code, done.stdout_bytes, done.stderr_bytes)


async def test_texts_are_items_and_the_answer_is_one_line_of_json(url, engine):
    done = await serai(
        url, "encode", "fake/encoder", "a", "b", "--body", '{"params": {"output_dtype": "int8"}}'
    )

    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert said["items"][0]["dense"]["values"] == (vector("a") * 10).astype("int8").tolist()
    assert [item.text for item in engine.requests[0].items] == ["a", "b"]


async def test_a_pipe_is_one_text_and_files_are_items_of_their_kind(url, engine, tmp_path):
    (tmp_path / "note.txt").write_text("written", "utf-8")
    (tmp_path / "page.pdf").write_bytes(b"%PDF-1.4")
    files = ["--file", tmp_path / "note.txt", "--file", tmp_path / "page.pdf"]

    piped = await serai(url, "encode", "fake/encoder", stdin="grüß\n".encode())
    filed = await serai(url, "extract", "fake/extractor", *files, "--label", "x", "--label", "y")

    assert (piped.returncode, filed.returncode) == (0, 0)
    first, second = engine.requests
    assert first.items[0].text == "grüß\n"
    note, page = second.items
    assert (note.text, page.document.data, page.document.format) == ("written", b"%PDF-1.4", "pdf")
    assert isinstance(second.options, ExtractOptions)
    assert second.options.labels == ("x", "y")


async def test_markdown_is_a_document_to_a_model_that_reads_no_text(url, engine, tmp_path):
    papers = spec("fake/papers", Task.EXTRACT, inputs=["document"])
    engine.catalog = Catalog({**engine.catalog.models, papers.id: papers}, {})
    (tmp_path / "a.md").write_text("# a")

    for model in ("fake/papers", "fake/extractor"):
        assert (await serai(url, "extract", model, "--file", tmp_path / "a.md")).returncode == 0
    gone = await serai(url, "extract", "fake/nothing", "--file", tmp_path / "a.md")

    first, second = (request.items[0] for request in engine.requests)
    assert (first.document.data, first.document.format, second.text) == (b"# a", "md", "# a")
    assert gone.returncode == 1 and b"fake/nothing" in gone.stderr


async def test_a_query_is_scored_against_texts(url):
    done = await serai(url, "score", "fake/reranker", "a cat", "a dog", "--query", "the cat")

    assert [score["item_id"] for score in json.loads(done.stdout)["scores"]] == ["item-0", "item-1"]


async def test_a_text_is_printed_as_it_is_written_or_whole(url, engine):
    done = Response("fake/writer", (Generated("héllo", "stop"),), Usage(1, 2), TIMING)
    engine.deltas = [Delta("hé", 1), Delta("llo", 1), Delta("", 0, done)]

    written = await serai(url, "generate", "fake/writer", "say it", "--max-new-tokens", "5")
    whole = await serai(url, "generate", "fake/writer", "say it", "--json")

    assert written.stdout == "héllo".encode()
    assert json.loads(whole.stdout)["text"] == "SAY IT"
    assert engine.requests[0].options.max_new_tokens == 5


async def test_a_text_that_breaks_off_is_an_error_after_what_was_written(url, engine):
    engine.deltas = [Delta("hel", 1), InvalidInput("it broke")]

    done = await serai(url, "generate", "fake/writer", "a")

    assert (done.returncode, done.stdout) == (1, b"hel")
    assert done.stderr == b"Error: INVALID_INPUT: it broke\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["encode", "fake/encodr", "a"],
            1,
            "Error: MODEL_NOT_FOUND: The catalogue has no model",
        ),
        (["generate", "fake/writer", "a", "b"], 1, "Error: generate takes one prompt"),
        (["encode", "fake/encoder", "--file", "/no/such"], 1, "Error: /no/such: No such file"),
        (["encode", "fake/encoder", "a", "--body", "{"], 2, "it is no JSON"),
        (["encode", "fake/encoder", "a", "--body", "[]"], 2, "it is no map of fields"),
        (["encode", "fake/encoder", "a", "--jsonl"], 2, "--jsonl reads standard input, or the one file"),
        (["encode", "fake/encoder", "--jsonl", "--file", "/no/such"], 2, "/no/such: no such file"),
        (["encode", "fake/encoder", "a", "--key-file", "/no/such"], 2, "/no/such: No such file"),
        (["score", "fake/reranker", "a"], 1, "query"),
    ],
)
async def test_a_mistake_costs_one_clear_message_and_an_exit_code(url, arguments, code, said):
    done = await serai(url, *arguments)

    assert done.returncode == code
    assert said in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert done.stdout == b""


async def test_bytes_that_are_no_text_are_refused_here(url, engine):
    done = await serai(url, "encode", "fake/encoder", stdin=b"\xff\xfe")

    assert (done.returncode, engine.requests) == (1, [])
    assert done.stderr == b"Error: standard input is no UTF-8 text: byte 0 of it is wrong.\n"


async def test_a_server_that_is_not_there_is_said_once_whatever_waits():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for arguments, stdin in [(["a"], b""), (["--jsonl"], b'"a"\n' * 50)]:
        done = await serai(url, "encode", "fake/encoder", *arguments, stdin=stdin)

        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode().count("\n") == 1
        assert "does not answer" in done.stderr.decode()


async def test_lines_are_answered_in_their_order_however_long_each_takes(url, engine):
    asked = [json.dumps(f"text {n}") for n in range(200)]

    done = await serai(url, "encode", "fake/encoder", "--jsonl", stdin="\n".join(asked).encode())

    assert done.returncode == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["items"][0]["dense"]["values"][0] for f in found] == pytest.approx(
        [float(vector(f"text {n}")[0]) for n in range(200)]
    )
    assert len(engine.requests) == 200


async def test_a_line_may_be_a_text_an_item_or_a_whole_body_and_a_wrong_one_fails_alone(url, engine):
    data = base64.b64encode(b"x").decode()
    asked = [
        '"a"',
        '{"id": "x", "text": "b"}',
        "",
        '{"items": [{"text": "c"}, {"text": "d"}]}',
        "nonsense",
        "[1]",
        json.dumps({"images": [{"data": data}], "id": 3}),
        '"e"',
    ]

    done = await serai(url, "encode", "fake/encoder", "--jsonl", stdin="\n".join(asked).encode() + b"\n")

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(f["items"]) if "items" in f else f["error"]["code"] for f in found] == [
        1,
        1,
        2,
        "INVALID_INPUT",
        "INVALID_INPUT",
        "INVALID_INPUT",
        1,
    ]
    assert done.returncode == 1
    assert done.stderr == b"Error: 3 of 7 lines failed; their answers have an error.\n"


async def test_a_full_server_is_asked_again_until_it_has_room(url, engine):
    refusals = iter([QueueFull("full").after(0.01)] * 3)

    def answer(request: Request) -> Response:
        for refusal in refusals:
            raise refusal
        return respond(request)

    engine.answer = answer
    done = await serai(url, "encode", "fake/encoder", "--jsonl", stdin=b'"a"\n"b"\n')

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    assert len(engine.requests) == 5


async def test_an_output_that_broke_off_is_taken_up_where_it_ended(url, engine, tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f'"{n}"\n' for n in range(10)))
    arguments = ["encode", "fake/encoder", "--jsonl", "--file", source, "--output", output]
    await serai(url, *arguments)
    whole = output.read_bytes()
    broken = b"".join(whole.splitlines(keepends=True)[:4])
    output.write_bytes(broken + whole[len(broken) : len(broken) + 50])

    done = await serai(url, *arguments)
    again = await serai(url, *arguments)

    assert (done.returncode, again.returncode) == (0, 0)
    assert output.read_bytes() == whole
    texts = [request.items[0].text for request in engine.requests]
    assert sorted(texts[10:]) == [str(n) for n in range(4, 10)]


async def test_lines_that_failed_the_last_time_are_told_of_again(url, engine, tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('"good"\n{"items": []}\n"good too"\n')
    arguments = ["encode", "fake/encoder", "--jsonl", "--file", source, "--output", output]

    once = await serai(url, *arguments)
    again = await serai(url, *arguments)

    assert (once.returncode, again.returncode) == (1, 1)
    assert again.stderr == once.stderr == b"Error: 1 of 3 lines failed; their answers have an error.\n"
    assert len(engine.requests) == 2


async def test_answers_that_come_early_wait_in_a_bounded_place(tmp_path):
    """The first line takes longest: no more are asked than fit in the window behind it."""
    asked: list[bytes] = []
    first = anyio.Event()

    async def ask(line: bytes) -> dict[str, str]:
        asked.append(line)
        if line == b"0\n":
            await first.wait()
        return {"line": line.decode().strip()}

    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{n}\n" for n in range(1000)))
    with output.open("wb") as out:
        written = lines.Written(out, lambda done: None)
        async with anyio.create_task_group() as group:
            group.start_soon(lines.run, lines.from_file(source, 0), ask, written, 2)
            for _ in range(2000):
                await anyio.lowlevel.checkpoint()
            waiting = len(asked)
            first.set()

    assert waiting == 2 * lines.WINDOW
    said = [json.loads(line)["line"] for line in output.read_text().splitlines()]
    assert said == [str(n) for n in range(1000)]
