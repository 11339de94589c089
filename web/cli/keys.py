"""`serai keys`: who may call this server."""

from __future__ import annotations

import json
from pathlib import Path

import click

from web.cli import access
from web.cli.options import Finite, as_table, settings_from, state_options


@click.group()
def keys() -> None:
    """Make, list and revoke API keys.

    They are kept in the state directory. A running server takes a change within a second.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["call", "metrics", "admin"]),
    default=["call"],
    show_default=True,
    help="What it is for; may be repeated.",
)
@click.option(
    "--class",
    "service_class",
    type=click.Choice(["interactive", "standard", "background"]),
    help="Class of requests that name none.",
)
@click.option("--model", "models", multiple=True, metavar="GLOB", help="Only these models, as 'BAAI/*'.")
@click.option("--rate", type=Finite(0, 1e6, min_open=True), metavar="N", help="Requests a second.")
@click.option("--burst", type=click.IntRange(1, 1_000_000), metavar="N", help="So many of them at once.")
@click.option(
    "--concurrency", type=click.IntRange(1, 1_000_000), metavar="N", help="Requests in flight at once."
)
@click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")
@state_options
def create(
    name: str,
    scopes: tuple[str, ...],
    service_class: str | None,
    models: tuple[str, ...],
    rate: float | None,
    burst: int | None,
    concurrency: int | None,
    reason: str,
    config: Path | None,
    pairs: tuple[str, ...],
    state_dir: str | None,
) -> None:
    """Make a key and print it, once: only its hash is kept."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access import credentials
    from engine.access.changes import Add
    from engine.access.principals import Scope
    from web.access.keys import NewKey, made

    chosen = tuple(Scope(scope) for scope in scopes)
    secret, principal = made(NewKey(name, chosen, service_class, list(models), rate, burst, concurrency))
    access.change(settings, Add(principal, credentials.key_hash(secret)), reason)
    click.echo(f"This is the key {name!r}, for servers on {settings.state_dir}.", err=True)
    click.echo("It is shown only now. Who has no key or user is let in no more (auth = auto).", err=True)
    click.echo(secret)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@state_options
def list_keys(as_json: bool, config: Path | None, pairs: tuple[str, ...], state_dir: str | None) -> None:
    """Every key, without its secret."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.principals import Kind
    from web.access.keys import shown

    table = access.known(settings).principals.values()
    found = [shown(key, key.last_used) for key in table if key.kind is Kind.KEY]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [
        (
            key["id"],
            key["name"],
            " ".join(key["scopes"]),
            key["class"] or "",
            " ".join(key["models"]) or "all",
            access.day(key["created"]),
            access.day(key["last_used"]),
            access.day(key["revoked"]),
        )
        for key in found
    ]
    plain = ("name", "scopes", "class", "models", "created", "last used", "revoked")
    as_table({"key": "bold", **dict.fromkeys(plain, "")}, rows)


@keys.command()
@click.argument("key")
@click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")
@state_options
def revoke(key: str, reason: str, config: Path | None, pairs: tuple[str, ...], state_dir: str | None) -> None:
    """Revoke a key, by its id or name. There is no way back."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.changes import Revoke
    from web.access.keys import found

    principal = found(access.known(settings).principals, key)
    access.change(settings, Revoke(principal.id), reason)
    click.echo(f"{principal.name} is revoked.")
