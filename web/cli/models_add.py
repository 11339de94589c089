"""`serai models add`: an entry for a repository that the catalogue does not know."""

from __future__ import annotations

from pathlib import Path

import click

from web.cli.options import catalogue, settings_from, settings_options


@click.command()
@click.argument("name", metavar="ORG/NAME")
@settings_options
@click.option("--write", is_flag=True, help="Keep it in the server's state directory, too.")
def add(name: str, write: bool, config: Path | None, pairs: tuple[str, ...], **flags: object) -> None:
    """Print an entry made of what a hub's repository says of itself.

    Its papers are read from the hub's cache, or fetched with --online. A running server sees what is
    written within seconds.
    """
    from engine import own_entries
    from engine.adopting import adopt
    from engine.errors import CatalogRejected, InvalidInput

    settings = settings_from(config, pairs, **flags)
    known = catalogue(settings)
    if name in known.models:
        raise InvalidInput(f"{name} is in the catalogue: `serai models show {name}` prints it.")
    spec = adopt.repository(name, settings.online, settings.hub_endpoint, settings.hub_token)
    text = own_entries.written(spec)
    click.echo(text, nl=False)
    if not write:
        return
    own, entry = settings.state_dir / "catalog", own_entries.parse(text)
    try:
        own_entries.check(known, own, entry)
    except CatalogRejected as error:
        raise click.ClickException(str(error)) from None
    own_entries.write(own, entry)
    click.echo(f"Written to {own_entries.place(own, name)}", err=True)
