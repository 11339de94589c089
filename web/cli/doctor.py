"""`serai doctor`: what this machine has, and what would keep the server from serving."""

from __future__ import annotations

from pathlib import Path

import click

from web.cli.options import as_table, catalogue, settings_from, settings_options

MARKS = {"good": "[green]good[/]", "note": "[yellow]note[/]", "wrong": "[red]wrong[/]"}


@click.command()
@settings_options
@click.option("--memory", metavar="SIZE", help="Memory of the first device that may be used, as 2GiB.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def doctor(config: Path | None, pairs: tuple[str, ...], as_json: bool, **flags: object) -> None:
    """Say what this machine has, and what is missing.

    Devices, memory, threads, disk, weights, hub, optional groups and the port.
    Exits with 1 when serving would fail with these settings.
    """
    settings = settings_from(config, pairs, **flags)

    from web.doctor import examine

    findings = list(examine(settings, catalogue(settings)))
    able = all(finding.state != "wrong" for finding in findings)
    if as_json:
        import dataclasses
        import json

        shown = {"able": able, "findings": [dataclasses.asdict(finding) for finding in findings]}
        click.echo(json.dumps(shown, indent=2))
    else:
        from rich.markup import escape

        rows = [
            (f.topic, MARKS[f.state], escape(f.said) + (f"\n[dim]{escape(f.remedy)}[/]" if f.remedy else ""))
            for f in findings
        ]
        as_table({"topic": "bold", "": "", "what was found": ""}, rows)
        click.echo("Serving would work." if able else "Serving would fail.")
    raise SystemExit(0 if able else 1)
