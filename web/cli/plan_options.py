"""Options of `serai plan`: what is planned with, and what is to be otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from web.cli.options import Finite, settings_from, state_options
from web.cli.sizes import MOST_TIMES, SIZES

if TYPE_CHECKING:
    from engine.catalog import ModelSpec
    from engine.config import Settings
    from engine.memory.footprint import Footprint
    from replay.plan import Basis
    from replay.whatif import Added, Change


SETTINGS = "serai.settings"
"""Where the context of a command has the settings that it goes by."""

MOST_RATE = 10_000.0
"""Requests a second for a model that is added."""

_BASIS = (
    click.argument("source"),
    click.option("--server", "measured_by", metavar="RECORDING", help="Whose server it is for."),
    click.option(
        "--as",
        "renamed",
        multiple=True,
        metavar="NAME=MODEL",
        help="Take a trace's model to be another.",
    ),
    click.option(
        "--hours",
        type=Finite(min=0, max=24 * 31, min_open=True),
        default=1.0,
        show_default=True,
        help="So much of it is simulated, the busiest.",
    ),
    click.option(
        "--size-scale",
        type=SIZES,
        default="1",
        show_default=True,
        help="Sizes are so many times those recorded; as input=0.1,output=2 where they differ.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True),
    click.option("--json", "as_json", is_flag=True, help="For machines."),
)

_CHANGE = (
    click.option("--vram", metavar="SIZE", help="Memory of each card, as 16GiB."),
    click.option(
        "--speed", type=Finite(1e-3, MOST_TIMES), help="Of the cards, in speeds of the one recorded."
    ),
    click.option("--devices", type=click.IntRange(1, 64), help="How many cards."),
    click.option("--pin", default="", metavar="A,B"),
    click.option("--unpin", default="", metavar="A,B"),
    click.option("--add-model", multiple=True, metavar="NAME=like:MODEL,rate=PER_SECOND"),
    click.option("--traffic", default="1x", show_default=True, metavar="K"),
    click.option("--method", type=click.Choice(["warp", "dup", "shift"]), default="dup", show_default=True),
    click.option("--policy", type=click.Choice(["value", "lru", "lfu"])),
    click.option("--window", type=Finite(0, 1), help="Share of the target."),
    click.option("--headroom", type=Finite(0, 0.9), help="Share of the memory left free."),
)


@contextmanager
def complaining() -> Iterator[None]:
    """What is wrong with a recording or a trace is said in a line."""
    from replay.trace import BadTrace

    try:
        yield
    except BadTrace as error:
        raise click.ClickException(str(error)) from None


def basis_options(command: Callable[..., None]) -> Callable[..., None]:
    """SOURCE and how it is read; the command gets `basis`, to be called once it runs."""

    @functools.wraps(command)
    def wrapped(
        source: str,
        measured_by: str | None,
        renamed: tuple[str, ...],
        hours: float,
        size_scale: tuple[float, float],
        seed: int,
        config: Path | None,
        pairs: tuple[str, ...],
        state_dir: str | None,
        **given: Any,
    ) -> None:
        settings = settings_from(config, pairs, state_dir=state_dir)
        click.get_current_context().meta[SETTINGS] = settings

        def basis() -> Basis:
            from replay.plan import basis as found

            return found(
                source,
                measured_by=measured_by,
                names=dict(_pair(each) for each in renamed),
                database=settings.state_dir / "traffic.db",
                hours=hours,
                sized=size_scale,
                seed=seed,
                validations=settings.state_dir / "validations",
                footprints=functools.partial(_footprint, settings),
            )

        with complaining():
            command(basis=basis, **given)

    for decorate in reversed(_BASIS):
        wrapped = decorate(wrapped)
    return state_options(wrapped)


def _footprint(settings: Settings, spec: ModelSpec) -> Footprint | None:
    """Of weights that are here; a plan goes on without."""
    from engine.adapters.family import family
    from engine.errors import EngineError
    from engine.sources.locate import Sources

    sources = Sources(settings.store, False, None, None, frozenset(settings.extras))
    if sources.here(spec) is None:
        return None
    try:
        return family(spec.family).footprint(spec, sources.locate(spec))
    except (EngineError, ImportError):
        return None


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def change_of(
    vram: str | None = None,
    speed: float | None = None,
    devices: int | None = None,
    pin: str = "",
    unpin: str = "",
    add_model: Sequence[str] = (),
    traffic: str = "1x",
    method: str = "dup",
    policy: str | None = None,
    window: float | None = None,
    headroom: float | None = None,
) -> Change:
    """As the options say it. Raises ValueError, or click's own complaint."""
    from engine.memory.rules import EvictionPolicy
    from engine.quantities import size
    from replay.scaling import Method
    from replay.whatif import Change

    pinned, unpinned = (tuple(filter(None, names.split(","))) for names in (pin, unpin))
    if both := sorted({*pinned} & {*unpinned}):
        raise ValueError(f"--pin and --unpin both name {', '.join(both)}; name it in one of them")
    return Change(
        vram=size(vram) if vram else None,
        speed=speed,
        devices=devices,
        pin=pinned,
        unpin=unpinned,
        add=tuple(map(_added, add_model)),
        traffic=_times(traffic),
        method=Method(method),
        policy=EvictionPolicy(policy) if policy else None,
        window=window,
        headroom=headroom,
    )


def _times(text: str) -> float:
    try:
        times = float(text.rstrip("x"))
    except ValueError:
        times = 0.0
    if not 0 < times <= MOST_TIMES:
        raise ValueError(
            f"--traffic is so many times the traffic, as 2x, above 0 and at most {MOST_TIMES:g};"
            f" not {text[:40]!r}."
        )
    return times


def change_options(command: Callable[..., None]) -> Callable[..., None]:
    """What differs; the command gets `change`."""

    @functools.wraps(command)
    def wrapped(
        vram: str | None,
        speed: float | None,
        devices: int | None,
        pin: str,
        unpin: str,
        add_model: tuple[str, ...],
        traffic: str,
        method: str,
        policy: str | None,
        window: float | None,
        headroom: float | None,
        **given: Any,
    ) -> None:
        try:
            change = change_of(
                vram, speed, devices, pin, unpin, add_model, traffic, method, policy, window, headroom
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        command(change=change, **given)

    for decorate in reversed(_CHANGE):
        wrapped = decorate(wrapped)
    return wrapped


def _added(text: str) -> Added:
    from replay.whatif import Added

    name, rest = _pair(text)
    parts = [part.replace("=", ":", 1).partition(":") for part in rest.split(",")]
    fields = {key: value for key, _, value in parts}
    if fields.keys() != {"like", "rate"}:
        raise click.BadParameter(f"{text!r} is not NAME=like:MODEL,rate=PER_SECOND", param_hint="--add-model")
    try:
        rate = float(fields["rate"])
    except ValueError:
        rate = 0.0
    if not 0 < rate <= MOST_RATE:
        raise click.BadParameter(
            f"rate is a number above 0 and at most {MOST_RATE:g}, not {fields['rate'][:40]!r}",
            param_hint="--add-model",
        )
    return Added(name, fields["like"], rate)
