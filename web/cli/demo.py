"""`serai demo`: a real pipeline through a server of its own, on a terminal."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from web.cli.options import catalogue, settings_from


@click.command()
@click.argument("pipeline", type=click.Choice(["claim", "invoice"]), default="claim")
@click.option("--store", metavar="DIR", help="Where weights are kept.")
@click.option(
    "--once", is_flag=True, help="End after the tables. DEMO=once in the environment says the same."
)
def demo(pipeline: str, store: str | None, once: bool) -> None:
    """Run a real pipeline through a server with little memory.

    The server's budget cannot hold the pipeline's models at once, so it loads and evicts as it goes.

    `claim`: two flood insurance claims from a scanned form to a written review, with nine models.
    `invoice`: passages encoded and ranked, fields extracted from the best, a question answered, with four.
    Everything goes through HTTP; the data is fictional. It then serves until Ctrl-C.
    """
    settings = settings_from(None, (), store=store)
    known = catalogue(settings)

    import anyio

    from engine.sources.locate import Sources
    from web.demo import models, weights
    from web.demo.apart import apart
    from web.demo.screen import screen
    from web.demo.showing import Plan, show

    sources = Sources.of(settings)
    console = screen()
    names = models.CLAIM if pipeline == "claim" else models.INVOICE
    weights.have(names, known, sources, console)
    detect = weights.here(models.OPTIONAL, known, sources)
    if pipeline == "claim" and detect:
        names = (*names, *models.OPTIONAL)
    plan = Plan(
        pipeline,
        Path(settings.store).expanduser(),
        detect=detect,
        models=len(names),
        apart=partial(apart, names, known, sources),
        stay=not (once or os.environ.get("DEMO") == "once"),
    )
    if not anyio.run(show, plan, console):
        raise SystemExit(130)
