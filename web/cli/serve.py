"""`serai serve`: the whole server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from web.cli.options import catalogue, settings_from, settings_options

if TYPE_CHECKING:
    from web.engine import Engine


@click.command()
@settings_options
@click.option("--host", metavar="ADDRESS", help="Address to listen on; a loopback one.  [127.0.0.1]")
@click.option("--port", metavar="PORT", help="Port to listen on; 0 takes any free one.  [8080]")
@click.option(
    "--device", "devices", multiple=True, metavar="NAME", help="cuda:0, cpu; may be repeated.  [auto]"
)
@click.option("--memory", metavar="SIZE", help="Memory of the first device that may be used, as 2GiB.")
@click.option("--slots", metavar="N", help="Batches that run at once on a device.")
@click.option("--pin", "pins", multiple=True, metavar="MODEL", help="Load at start and never evict.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.  [info]")
def serve(
    config: Path | None,
    pairs: tuple[str, ...],
    devices: tuple[str, ...],
    **flags: object,
) -> None:
    """Serve every model of the catalogue until Ctrl-C.

    Settings come from a TOML file, then SERAI_* variables, then flags; `serai docs settings` lists
    them all. The first SIGTERM or Ctrl-C drains: nothing new is admitted, and what is in flight is
    finished. The second ends the process at once.
    """
    settings = settings_from(config, pairs, devices=",".join(devices) or None, **flags)
    models = catalogue(settings)

    from web.listening import bind

    listener = bind(settings)

    from web.cli.process import prepare

    prepare(settings)

    import sys

    import anyio

    from web import serving
    from web.logs import log_to

    def announce(url: str, engine: Engine) -> None:
        click.echo(f"Serai is at {url} with {len(models)} models on {_devices(engine)}. Ctrl-C stops it.")
        if token := engine.access.invitation:
            click.echo(f"It has no users yet. Make the first one at {url}login with the token {token}")

    with log_to(sys.stderr, settings):
        anyio.run(serving.run, settings, models, listener, announce)
    click.echo("Serai has stopped.")


def _devices(engine: Engine) -> str:
    from engine.quantities import about

    return ", ".join(
        f"{device.name} ({about(device.budget_bytes)}, {device.slots} slots)"
        for device in engine.view().devices
    )
