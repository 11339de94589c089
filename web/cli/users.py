"""`serai users`: who may use the console."""

from __future__ import annotations

import json
from pathlib import Path

import click

from web.cli import access
from web.cli.options import as_table, settings_from, state_options

ROLES = click.Choice(["viewer", "operator", "admin"])
_stdin = click.option("--password-stdin", is_flag=True, help="Read the password as a line of standard input.")
_reason = click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")


@click.group()
def users() -> None:
    """Add, list and remove users of the console.

    They are kept in the state directory. A running server takes a change within a second.
    """


@users.command()
@click.argument("name")
@click.option("--role", type=ROLES, default="viewer", show_default=True, help="What they may do.")
@_stdin
@_reason
@state_options
def add(
    name: str,
    role: str,
    password_stdin: bool,
    reason: str,
    config: Path | None,
    pairs: tuple[str, ...],
    state_dir: str | None,
) -> None:
    """Add a user and ask for their password.

    A viewer looks, an operator also loads, pins and calls models, an admin also makes keys and users.
    """
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.changes import Add
    from engine.access.principals import Role
    from web.access.users import new

    principal = new(name, Role(role))
    access.change(settings, Add(principal, access.password(password_stdin)), reason)
    click.echo(f"{principal.name} may log in as {role}.")


@users.command("list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@state_options
def list_users(as_json: bool, config: Path | None, pairs: tuple[str, ...], state_dir: str | None) -> None:
    """Every user and their role."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.principals import Kind
    from web.access.users import shown

    table = access.known(settings).principals.values()
    found = [shown(user, user.last_used) for user in table if user.kind is Kind.USER]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [
        (user["name"], user["role"], *(access.day(user[at]) for at in ("created", "last_used", "removed")))
        for user in found
    ]
    as_table({"user": "bold", **dict.fromkeys(("role", "created", "last used", "removed"), "")}, rows)


@users.command()
@click.argument("name")
@_reason
@state_options
def remove(
    name: str, reason: str, config: Path | None, pairs: tuple[str, ...], state_dir: str | None
) -> None:
    """Remove a user; their sessions end."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.changes import Revoke

    access.change(settings, Revoke(f"user:{name}"), reason)
    click.echo(f"{name} is removed.")


@users.command()
@click.argument("name")
@_stdin
@_reason
@state_options
def passwd(
    name: str,
    password_stdin: bool,
    reason: str,
    config: Path | None,
    pairs: tuple[str, ...],
    state_dir: str | None,
) -> None:
    """Give a user a new password; their sessions end."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.changes import NewPassword

    access.change(settings, NewPassword(f"user:{name}", access.password(password_stdin)), reason)
    click.echo(f"{name} has a new password.")


@users.command()
@click.argument("name")
@click.argument("role", type=ROLES)
@_reason
@state_options
def role(
    name: str, role: str, reason: str, config: Path | None, pairs: tuple[str, ...], state_dir: str | None
) -> None:
    """Give a user another role."""
    settings = settings_from(config, pairs, state_dir=state_dir)

    from engine.access.changes import NewRole
    from engine.access.principals import Role

    access.change(settings, NewRole(f"user:{name}", Role(role)), reason)
    click.echo(f"{name} is {role} now.")
