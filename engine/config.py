"""Every setting, declared once. One reader: a TOML file, then `SERAI_*`, then flags; the last one wins.

This is the only module that looks at the environment for settings. Values keep where they came from.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from engine.complaints import mistakes
from engine.quantities import Bytes, Count, Maybe, Number, Seconds, Share, Words, about, as_size, words

MiB = 2**20
GiB = 2**30

LEAST_MEMORY = 64 * MiB
"""Bytes; less holds no model and its work."""


class SettingsError(Exception):
    """The settings cannot be used as they are; each line names where, which key, and what is wrong."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = list(complaints)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: the kind of place, and its name as an operator would look for it."""

    kind: Literal["default", "file", "env", "flag"] = "default"
    name: str = "default"

    def __str__(self) -> str:
        return self.name


def _devices(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        kind, _, which = name.partition(":")
        good = {"auto": not which, "cpu": not which, "cuda": not which or which.isdecimal()}
        if not good.get(kind, kind == "simulated" and bool(which)):
            raise ValueError(f"{name!r} is no device; there are auto, cpu, cuda:N and simulated:NAME")
    if len(set(names)) < len(names):
        raise ValueError("a device is named twice")
    return ",".join(names)


def _base_path(value: str) -> str:
    if value and (not value.startswith("/") or value.endswith("/") or set(value) & set("{}?#% ")):
        raise ValueError("write it plainly, with a leading slash and no trailing one: /serai")
    return value


def _memory(value: int | None) -> int | None:
    """A bare number is bytes, and whoever writes 2 means something else."""
    if value is not None and value < LEAST_MEMORY:
        meant = f"; did you mean {value}GiB?" if 0 < value < 1024 else ""
        raise ValueError(f"{about(value)} is less than {as_size(LEAST_MEMORY)}, which holds no model{meant}")
    return value


def _url(value: str | None) -> str | None:
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("expected a URL that starts with https:// or http://")
    return value.rstrip("/") if value else None


Folder = Annotated[Path, AfterValidator(Path.expanduser)]


def _setting(section: str, default: Any, unit: str, text: str) -> Any:
    extra: dict[str, Any] = {"section": section, "unit": unit}
    return Field(default, description=text, json_schema_extra=extra, repr=unit != "secret")


_server = partial(_setting, "Server")
_device = partial(_setting, "Devices")
_model = partial(_setting, "Models")
_residency = partial(_setting, "Residency")
_schedule = partial(_setting, "Scheduling")
_queue = partial(_setting, "Queue")
_record = partial(_setting, "Records")


class Settings(BaseModel):
    """One flat value for the whole server. `load` makes it; a test may make it by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    host: str = _server("127.0.0.1", "address", "Address to listen on. Without keys only a loopback one.")
    port: Annotated[Number, Field(le=65535)] = _server(
        8080, "port", "Port to listen on; 0 takes any free one."
    )
    allowed_hosts: Words = _server(
        (), "names", "Names that a Host header may carry, beside the loopback ones and `host`."
    )
    base_path: Annotated[str, AfterValidator(_base_path)] = _server(
        "", "path", "Path under which a proxy shows this server; it is answered with and without it."
    )
    max_body_bytes: Bytes = _server(34 * MiB, "bytes", "Largest body of one request.")
    max_items: Count = _server(5000, "items", "Most items in one request.")
    max_item_text_bytes: Bytes = _server(2 * MiB, "bytes", "Longest text and metadata of one item.")
    max_connections: Count = _server(4096, "connections", "Most connections open at once.")
    server_version: str = _server(
        "0.10.1", "version", "Version told to clients that compare it with their own."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _server("info", "level", "Least level logged.")
    log_format: Literal["text", "json"] = _server("text", "format", "Lines for people or for machines.")
    drain_limit: Seconds = _server(30.0, "duration", "Longest wait for requests in flight when stopping.")

    devices: Annotated[str, AfterValidator(_devices)] = _device(
        "auto",
        "names",
        "Devices, by comma: `cuda:0`, `cpu`, `simulated:NAME`. `auto`: every CUDA card and cpu.",
    )
    memory: Annotated[Bytes | None, Maybe, AfterValidator(_memory)] = _device(
        None,
        "bytes",
        "Memory of the first device that may be used; on cpu for weights and workspace. "
        "Empty: all of a card, half of the host memory that is available on cpu.",
    )
    headroom: Share = _device(0.2, "share", "Share of the memory that is left free.")
    slots: Annotated[Count | None, Maybe] = _device(
        None, "slots", "Batches that run at once on a device. Empty: one a core on cpu, two on a card."
    )
    threads_per_slot: Count = _device(1, "threads", "Threads of one slot on cpu.")

    catalog: Annotated[tuple[Folder, ...], BeforeValidator(words)] = _model(
        (), "directories", "Further catalogue directories; a later entry replaces an earlier one's."
    )
    store: Folder = _model(
        Path("~/.cache/serai"), "directory", "Where converted and downloaded weights are kept."
    )
    state_dir: Folder = _model(Path("~/.local/share/serai"), "directory", "Where the two databases live.")
    online: bool = _model(False, "yes or no", "Whether a model hub may be asked for weights.")
    hub_endpoint: Annotated[str | None, AfterValidator(_url), Maybe] = _model(
        None, "URL", "Another hub or a mirror. `HF_ENDPOINT` is read too."
    )
    hub_token: Annotated[str | None, Maybe] = _model(
        None, "secret", "Token for the hub. `HF_TOKEN` is read too. Never shown."
    )
    extras: Words = _model((), "names", "Optional packs to use beside the default one.")

    max_hold: Seconds = _residency(120.0, "duration", "Longest wait of a request for a cold model.")
    load_cooldown: Seconds = _residency(10.0, "duration", "Pause after a load that failed.")
    min_residency: Seconds = _residency(2.0, "duration", "Least time that a loaded model stays.")
    max_cold_wait: Seconds = _residency(
        5.0, "duration", "Longest that a cold model's jobs wait behind models that are loaded."
    )
    eviction: Literal["value", "lru", "lfu"] = _residency(
        "value", "policy", "Who leaves when memory is short."
    )
    idle_unload: Annotated[Seconds | None, Maybe] = _residency(
        None, "duration", "Unload a model that was idle so long. Empty: only when memory is short."
    )
    loads_at_once: Count = _residency(2, "loads", "Most models that load at once on a device.")
    pins: Words = _residency((), "models", "Models that are loaded at start and never evicted.")

    interactive_target: Seconds = _schedule(0.2, "duration", "p99 target of the class `interactive`.")
    standard_target: Seconds = _schedule(2.0, "duration", "p99 target of the class `standard`.")
    background_target: Seconds = _schedule(60.0, "duration", "p99 target of the class `background`.")
    interactive_window: Seconds = _schedule(
        10.0, "duration", "How long after an interactive job other batches are kept short."
    )
    background_floor: Share = _schedule(
        0.05, "share", "Share of the device that background work always gets."
    )
    quantum: Seconds = _schedule(0.05, "duration", "Predicted length of one turn of text generation.")

    max_waiting_jobs: Count = _queue(20000, "jobs", "Most jobs that wait in the whole server.")
    max_model_jobs: Count = _queue(10000, "jobs", "Most jobs that wait for one model.")
    max_held_bytes: Bytes = _queue(1 * GiB, "bytes", "Host memory for bodies and prepared inputs.")
    max_batch_cost: Annotated[Count | None, Maybe] = _queue(
        None, "cost", "Largest batch, in the model's own unit. Empty: as memory and targets allow."
    )
    preparation_threads: Count = _queue(2, "threads", "Threads that tokenise and decode.")
    preparation_backlog: Count = _queue(20000, "items", "Most items that wait for preparation.")

    recording: bool = _record(True, "yes or no", "Whether each request leaves one row, without its content.")
    record_days: Count = _record(14, "days", "How long rows are kept.")
    session_key: Annotated[str | None, Maybe] = _record(
        None, "secret", "Key of the hash that stands for a session. Empty: a new one a start."
    )

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.interactive_target <= self.standard_target <= self.background_target:
            raise ValueError("interactive_target, standard_target and background_target must not decrease")
        return self

    def origin(self, name: str) -> Origin:
        """Where the effective value of `name` came from."""
        return self._origins.get(name, Origin())


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said once about a setting."""

    name: str
    section: str
    unit: str
    help: str
    default: Any

    @property
    def secret(self) -> bool:
        return self.unit == "secret"

    @property
    def variable(self) -> str:
        return f"SERAI_{self.name.upper()}"


def declarations() -> Iterator[Declaration]:
    """All settings in the order in which they are declared."""
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        yield Declaration(
            name, str(extra["section"]), str(extra["unit"]), field.description or "", field.default
        )


_Given = tuple[str, object, Origin]


def load(
    flags: Mapping[str, object] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The effective settings. A flag that is None was not given.

    `file` must exist; without it `SERAI_CONFIG`, `serai.toml` here, or the one in the user's
    configuration directory is read. Raises SettingsError with every complaint there is.
    """
    path = _file(file, environ)
    given = [
        *_places(environ),
        *(_toml(path) if path else ()),
        *_environment(environ),
        *(
            (n.replace("-", "_"), v, Origin("flag", "flag"))
            for n, v in (flags or {}).items()
            if v is not None
        ),
    ]
    known = Settings.model_fields
    complaints = [f"{origin}: {_unknown(name, value)}" for name, value, origin in given if name not in known]
    values = {name: value for name, value, _ in given if name in known}
    origins = {name: origin for name, _, origin in given}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        for where, message in mistakes(error, Settings):
            name = str(where[0]) if where else ""
            complaints.append(f"{origins.get(name, Origin())}: {name}: {message}" if name else message)
        raise SettingsError(complaints) from None
    if complaints:
        raise SettingsError(complaints)
    settings._origins = origins
    return settings


def _file(asked: Path | None, environ: Mapping[str, str]) -> Path | None:
    if asked is None and (named := environ.get("SERAI_CONFIG")):
        asked = Path(named)
    if asked is not None:
        return asked
    home = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return next((p for p in (Path("serai.toml"), home / "serai" / "serai.toml") if p.is_file()), None)


def _toml(path: Path) -> list[_Given]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror}"]) from None
    except ValueError as error:
        raise SettingsError([f"{path}: {error}"]) from None
    return [(name, value, Origin("file", str(path))) for name, value in found.items()]


def _places(environ: Mapping[str, str]) -> Iterator[_Given]:
    """Defaults that follow the user's own directories."""
    for name, variable in (("store", "XDG_CACHE_HOME"), ("state_dir", "XDG_DATA_HOME")):
        if home := environ.get(variable):
            yield name, Path(home) / "serai", Origin()


def _environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name, variable in (("hub_endpoint", "HF_ENDPOINT"), ("hub_token", "HF_TOKEN")):
        if variable in environ:
            yield name, environ[variable], Origin("env", variable)
    for variable in sorted(environ):
        if variable.startswith("SERAI_") and variable != "SERAI_CONFIG":
            name = variable.removeprefix("SERAI_").lower()
            yield name, environ[variable], Origin("env", variable)


def _unknown(name: str, value: object) -> str:
    if isinstance(value, dict):
        return f"[{name}] is a table; the file is a flat list of keys, as port = 8080"
    if (key := name.removeprefix("SERAI_").lower()) != name and key in Settings.model_fields:
        return f"there is no setting {name!r}; the key is {key!r}"
    near = difflib.get_close_matches(name, Settings.model_fields, n=1)
    return f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
