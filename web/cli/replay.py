"""`serai replay`: recorded traffic sent again, and a report of what came of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from web.cli.options import Finite, settings_from, settings_options
from web.cli.server import key as key_of
from web.cli.sizes import SIZES, TIMES
from web.cli.supervised import SUPERVISED, end_with_input

if TYPE_CHECKING:
    from replay.replaying.wanted import Wanted


def _target(ctx: click.Context, param: click.Parameter, said: str | None) -> str | None:
    """`engine`, or the whole URL of a server."""
    if said is None or said == "engine":
        return said
    url = said if "://" in said else f"http://{said}"
    try:
        found = urlsplit(url)
        known = found.scheme in ("http", "https") and found.hostname and found.port != 0
    except ValueError:
        known = False
    if not known:
        raise click.BadParameter(f"{said[:200]!r} is neither an http or https URL nor engine.", ctx, param)
    return url


def _between(ctx: click.Context, param: click.Parameter, said: str | None) -> tuple[float, float] | None:
    if said is None:
        return None
    begin, separator, end = said.partition(":")
    try:
        stretch = float(begin or 0), float(end or "inf")
    except ValueError:
        stretch = math.nan, math.nan
    if not separator or any(map(math.isnan, stretch)):
        raise click.BadParameter(f"{said[:40]!r} is not FROM:TO, in seconds", ctx, param)
    return stretch


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="RECORDING|FILE...")
@click.option(
    "--to",
    metavar="URL|engine",
    callback=_target,
    help="A server that speaks the native wire, or an engine in this process.  [a server started for this]",
)
@click.option("--key-file", type=click.Path(path_type=Path), help="A file with an API key; else SERAI_KEY.")
@click.option("--speed", type=TIMES, default=1.0, show_default=True, help="Time runs so many times as fast.")
@click.option(
    "--scale", type=TIMES, default=1.0, show_default=True, help="So many times the load, by --method."
)
@click.option(
    "--method",
    type=click.Choice(["warp", "dup", "shift"]),
    default="warp",
    show_default=True,
    help="warp: the same, faster; dup: copies at the same moments; shift: copies at other moments.",
)
@click.option(
    "--size-scale",
    type=SIZES,
    default="1",
    show_default=True,
    help="Inputs and answers so many times as large; as input=0.1,output=2 where they differ.",
)
@click.option("--only", multiple=True, metavar="MODEL", help="Only requests for this model; repeatable.")
@click.option(
    "--as", "names", multiple=True, metavar="NAME=MODEL", help="Ask MODEL where NAME was; repeatable."
)
@click.option(
    "--between",
    metavar="FROM:TO",
    callback=_between,
    help="Only this stretch, in seconds from the start.",
)
@click.option("--closed-sessions", is_flag=True, help="A session's next request waits for the answer before.")
@click.option("--ramp", is_flag=True, help="Raise the rate step by step until the targets break.")
@click.option(
    "--dwell",
    type=Finite(min=0, max=24 * 3600, min_open=True),
    default=180.0,
    show_default=True,
    help="Of a ramp: seconds of a step near its end.",
)
@click.option(
    "--load-first",
    is_flag=True,
    help="Load every model of the trace before it begins; not on a server that is there.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Of what is made up.  [the recording's, or 0]"
)
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Columns of a CSV of your own.")
@click.option(
    "--unit",
    type=Finite(min=0, max=1e9, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds in one unit of such a time column.",
)
@click.option("--state-dir", metavar="DIR", help="Where the server that recorded keeps its state.")
@click.option("--output", "-o", metavar="BASE", help="The report is BASE.html and BASE.json.  [replay-NAME]")
@click.option("--supervised", is_flag=True, help=SUPERVISED)
@settings_options
def replay(
    sources: tuple[str, ...],
    to: str | None,
    key_file: Path | None,
    mapping: tuple[str, ...],
    unit: float,
    state_dir: str | None,
    output: str | None,
    supervised: bool,
    config: Path | None,
    pairs: tuple[str, ...],
    **flags: Any,
) -> None:
    """Send recorded traffic again and report what came of it.

    RECORDING is one of this machine's server; FILE holds a recording, or a trace of others. Requests go out
    at the moments at which they came, whatever became of those before them. Where content was not
    recorded, payloads of the same size are made up. Ctrl-C ends it and keeps what was measured. Exits with
    1 when the run is void.
    """
    wanting = {name: flags.pop(name) for name in _WANTING}
    sending = {name: flags.pop(name) for name in ("closed_sessions", "ramp", "dwell", "load_first")}
    settings = settings_from(config, pairs, state_dir=state_dir, **flags)

    if supervised:
        end_with_input()

    from web.cli import traces
    from web.replaying.going import Going, go

    said = traces.pairs(mapping, "--map")
    trace, recording = traces.side_by_side(sources, said, unit, settings.state_dir)
    going = Going(
        trace=trace,
        recording=recording,
        wanted=_wanted(recording.seed if recording else 0, **wanting),
        settings=settings,
        to=to,
        key=key_of(key_file),
        closed_sessions=sending["closed_sessions"],
        load_first=sending["load_first"],
        ramp=sending["dwell"] if sending["ramp"] else None,
        base=Path(output or f"replay-{trace.name.replace('/', '-')}"),
        supervised=supervised,
    )
    raise SystemExit(0 if go(going) else 1)


_WANTING = ("speed", "scale", "method", "size_scale", "only", "names", "between", "seed")
"""Options that say what of the traffic is sent, and how much of it."""


def _wanted(
    recorded_seed: int,
    *,
    method: str,
    names: tuple[str, ...],
    seed: int | None,
    size_scale: tuple[float, float],
    **as_it_is: Any,
) -> Wanted:
    from replay.replaying.wanted import Wanted
    from replay.scaling import Method
    from web.cli.traces import pairs

    return Wanted(
        method=Method(method),
        names=pairs(names, "--as"),
        input_scale=size_scale[0],
        output_scale=size_scale[1],
        seed=recorded_seed if seed is None else seed,
        **as_it_is,
    )
