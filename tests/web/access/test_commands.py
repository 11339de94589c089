"""`serai keys` and `serai users`: with no server, and beside one that runs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import ClientSession
from click.testing import CliRunner, Result

from engine.access.credentials import password_is, public_part
from engine.access.rows import known
from engine.actors.state_store import open_database
from tests.web.access.conftest import PASSWORD, bearer
from web.cli import serai

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Nothing of whoever runs the tests is read or written."""
    monkeypatch.chdir(tmp_path)
    for variable in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable.lower()))
    return tmp_path


def call(*arguments: object, said: str = "") -> Result:
    result = CliRunner().invoke(serai, [str(a) for a in arguments], input=said)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def table(home: Path):
    db = open_database(home / "data" / "serai" / "state.db", "normal")
    try:
        return known(db), list(db["audit"].rows)
    finally:
        db.close()


def test_a_key_is_printed_alone_on_standard_output_and_kept_as_a_hash(home):
    result = call(
        "keys", "create", "CI bot", "--scope", "call", "--scope", "metrics", "--class", "background"
    )
    secret = result.stdout.strip()
    kept, audit = table(home)

    assert result.exit_code == 0 and public_part(secret)
    assert "shown only now" in result.stderr and secret not in result.stderr
    (principal,) = kept.principals.values()
    assert (principal.name, principal.scopes) == ("CI bot", ("call", "metrics"))
    assert secret not in str(kept.secrets) + str(audit)
    assert audit[0]["who"].startswith("command line (")


def test_keys_are_listed_and_revoked_by_name_or_id(home):
    one = call("keys", "create", "one", "--model", "BAAI/*", "--rate", "2.5").stdout.strip()
    call("keys", "create", "two")
    listed = call("keys", "list").stdout
    assert "BAAI/*" in listed and one not in listed and one[6:14] in listed
    assert call("keys", "revoke", one[6:14], "--reason", "leaked").exit_code == 0
    assert call("keys", "revoke", "two").stdout == "two is revoked.\n"

    assert all(key["revoked"] for key in json.loads(call("keys", "list", "--json").stdout))
    assert [row["reason"] for row in table(home)[1]] == ["", "", "leaked", ""]


def test_a_user_is_added_changed_and_removed(home):
    twice = f"{PASSWORD}\n{PASSWORD}\n"
    assert call("users", "add", "Ann", "--role", "admin", said=twice).exit_code == 0
    assert call("users", "add", "bob", "--password-stdin", said=f"{PASSWORD}\n").exit_code == 0
    kept, _ = table(home)
    assert password_is(PASSWORD, kept.secrets["user:ann"])
    assert call("users", "passwd", "bob", "--password-stdin", said="battery staple").exit_code == 0
    assert call("users", "role", "bob", "operator").stdout == "bob is operator now.\n"
    assert password_is("battery staple", table(home)[0].secrets["user:bob"])
    assert "operator" in call("users", "list").stdout
    assert call("users", "remove", "bob").exit_code == 0

    listed = json.loads(call("users", "list", "--json").stdout)
    assert [(user["name"], user["role"], bool(user["removed"])) for user in listed] == [
        ("ann", "admin", False),
        ("bob", "operator", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "said", "complaint"),
    [
        (["keys", "create", "a\tb"], "", "name"),
        (["keys", "create", "x", "--scope", "root"], "", "root"),
        (["keys", "create", "x", "--rate", "0"], "", "rate"),
        (["keys", "revoke", "nobody"], "", "no key 'nobody'"),
        (["users", "add", "a b", "--password-stdin"], f"{PASSWORD}\n", "name"),
        (["users", "add", "ann", "--password-stdin"], "short\n", "10 to 1024"),
        (["users", "add", "ann", "--role", "god"], "", "god"),
        (["users", "remove", "nobody"], "", "no user 'nobody'"),
        (["users", "passwd", "nobody", "--password-stdin"], f"{PASSWORD}\n", "no user 'nobody'"),
        (["keys", "list", "--state-dir", "/dev/null/x"], "", "state_dir"),
    ],
)
def test_what_cannot_be_done_costs_one_line_and_no_traceback(home, arguments, said, complaint):
    result = call(*arguments, said=said)

    assert result.exit_code != 0
    assert complaint in result.stderr and "Traceback" not in result.output


@asynccontextmanager
async def process(home: Path) -> AsyncIterator[tuple[anyio.abc.Process, str]]:
    """The server itself, on a device that computes nothing, and where it is."""
    command = [sys.executable, "-m", "web", "serve", "--port=0", "--device=simulated:one"]
    command += [f"--set=state_dir={home / 'data' / 'serai'}", f"--store={home / 'store'}"]
    async with await anyio.open_process(command, cwd=ROOT) as running:
        try:
            with anyio.fail_after(60):
                line = (await running.stdout.receive()).decode()
            yield running, line.split()[3]
        finally:
            if running.returncode is None:
                running.kill()


@pytest.mark.anyio
async def test_a_running_server_takes_changes_and_a_kill_loses_none(home):
    """What the command line changes counts within a second; what HTTP has answered is on disk."""
    async with process(home) as (running, place), ClientSession(place) as http:

        async def status(secret: str | None, method="GET", path="v1/models", **body) -> tuple[int, dict]:
            headers = bearer(secret) if secret else {}
            async with http.request(method, path, headers=headers, **body) as answer:
                return answer.status, await answer.json()

        async def until(secret: str | None, expected: int) -> None:
            with anyio.fail_after(10):
                while (await status(secret))[0] != expected:  # noqa: ASYNC110  another process
                    await anyio.sleep(0.05)

        assert (await status(None))[0] == 200
        secret = call("keys", "create", "bot", "--scope", "call", "--scope", "admin").stdout.strip()
        await until(None, 401)
        await until(secret, 200)
        made = await status(secret, "POST", "v1/admin/keys", json={"name": "made over HTTP"})
        running.kill()
        await running.wait()

    kept, _ = table(home)
    assert [p.name for p in kept.principals.values()] == ["bot", "made over HTTP"]
    assert made[0] == 201 and f"key:{public_part(made[1]['key'])}" in kept.principals
