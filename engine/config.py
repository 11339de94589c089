"""Every setting, declared once. One reader: a TOML file, then `SERAI_*`, then flags; the last one wins.

Values keep where they came from; `engine/given.py` reads them there.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
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

from engine import checks
from engine.complaints import mistakes
from engine.given import Origin as Origin
from engine.given import SettingsError as SettingsError
from engine.given import everything
from engine.quantities import Bytes, Count, Maybe, Number, Seconds, Share, Words, words

MiB = 2**20
GiB = 2**30

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
_batch = partial(_setting, "Batches")
_record = partial(_setting, "Records")


class Settings(BaseModel):
    """One flat value for the whole server. `load` makes it; a test may make it by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    host: str = _server(
        "127.0.0.1", "address", "Address to listen on. Without keys and users only a loopback one."
    )
    port: Annotated[Number, Field(le=65535)] = _server(
        8080, "port", "Port to listen on; 0 takes any free one."
    )
    allowed_hosts: Words = _server(
        (), "names", "Names that a Host header may carry, beside the loopback ones and `host`."
    )
    cors_origins: Words = _server(
        (), "origins", "Sites whose pages may call the models from a browser: `https://app.example`, or `*`."
    )
    auth: Literal["auto", "keys", "off"] = _server(
        "auto",
        "mode",
        "Who may come in. `auto`: everybody on this machine until there is a key or a user, then only those; "
        "`keys`: only those, always; `off`: everybody, on a loopback address.",
    )
    trusted_proxies: Annotated[Words, AfterValidator(checks.networks)] = _server(
        (), "networks", "Proxies whose `X-Forwarded-*` headers are believed, as `10.0.0.5` or `10.0.0.0/24`."
    )
    base_path: Annotated[str, AfterValidator(checks.base_path)] = _server(
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
    log_format: Literal["auto", "console", "json"] = _server(
        "auto", "format", "Lines for people or for machines. `auto`: for people where stderr is a terminal."
    )
    otel_endpoint: Annotated[str | None, Maybe] = _server(
        None,
        "url",
        "Where traces go over OTLP/HTTP, as `http://collector:4318/v1/traces`. Empty: nowhere. "
        "Needs the extra `otel`.",
    )
    otel_sample: Share = _server(0.1, "share", "Share of the requests that bring no trace and are traced.")
    drain_limit: Seconds = _server(
        30.0, "duration", "Longest wait for requests in flight, when stopping and when draining a model."
    )

    devices: Annotated[str, AfterValidator(checks.devices)] = _device(
        "auto",
        "names",
        "Devices, by comma: `cuda:0`, `cpu`, `simulated:NAME`. `auto`: every CUDA card and cpu.",
    )
    memory: Annotated[Bytes | None, Maybe, AfterValidator(checks.memory)] = _device(
        None,
        "bytes",
        "Memory of the first device that may be used; on cpu for weights and workspace. "
        "Empty: all of a card, half of the host memory that is available on cpu.",
    )
    headroom: Share = _device(0.2, "share", "Share of the memory that is left free.")
    slots: Annotated[Count | None, Maybe] = _device(
        None, "slots", "Batches that run at once on a device. Empty: one a core on cpu, two on a card."
    )
    host_memory: Annotated[Bytes | None, Maybe] = _device(
        None,
        "bytes",
        "Host memory that keeps weights which had to leave a card, so that they come back fast; "
        "0 keeps none. Empty: a quarter of what is available.",
    )
    threads_per_slot: Count = _device(1, "threads", "Threads of one slot on cpu.")

    catalog: Annotated[tuple[Folder, ...], BeforeValidator(words)] = _model(
        (), "directories", "Further catalogue directories; a later entry replaces an earlier one's."
    )
    catalog_watch: bool = _model(
        True, "yes or no", "Whether changes of catalogue files take effect while serving."
    )
    schedule_timezone: Annotated[str | None, AfterValidator(checks.zone), Maybe] = _model(
        None,
        "time zone",
        "Of `preheat` and `unload` in the catalogue, as `Europe/Paris`. Empty: the system's.",
    )
    store: Folder = _model(
        Path("~/.cache/serai"), "directory", "Where converted and downloaded weights are kept."
    )
    state_dir: Folder = _model(
        Path("~/.local/share/serai"), "directory", "Where databases, files, entries and results lie."
    )
    online: bool = _model(False, "yes or no", "Whether a model hub may be asked for weights.")
    hub_endpoint: Annotated[str | None, AfterValidator(checks.url), Maybe] = _model(
        None, "URL", "Another hub or a mirror. `HF_ENDPOINT` is read too."
    )
    hub_token: Annotated[str | None, Maybe] = _model(
        None, "secret", "Token for the hub. `HF_TOKEN` is read too. Never shown."
    )
    extras: Words = _model((), "names", "Optional packs to use beside the default one.")
    open_catalog: bool = _model(
        False,
        "yes or no",
        "Whether a request may name a hub's repository that the catalogue lacks: its papers are read from "
        "the hub's cache, or fetched with `online`, and an entry is written.",
    )
    sglang_python: Annotated[Folder | None, Maybe] = _model(
        None,
        "file",
        "Interpreter of an environment that has SGLang. Empty: the one of `serai backends install sglang`.",
    )
    tei_embed: Annotated[str | None, Maybe] = _model(
        None, "model", "Model that answers `/embed`, `/embed_all`, `/embed_sparse` at the root, as TEI does."
    )
    tei_rerank: Annotated[str | None, Maybe] = _model(
        None, "model", "Model that answers `/rerank` at the root."
    )
    tei_predict: Annotated[str | None, Maybe] = _model(
        None, "model", "Model that answers `/predict` at the root."
    )

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
    window_share: Share = _schedule(
        0.1, "share", "Of its class's target that a batch may wait for company, where waiting pays; 0: never."
    )
    quantum: Seconds = _schedule(0.05, "duration", "Predicted length of one turn of text generation.")

    max_waiting_jobs: Count = _queue(20000, "jobs", "Most jobs that wait in the whole server.")
    max_model_jobs: Count = _queue(10000, "jobs", "Most jobs that wait for one model.")
    max_model_cost: Count = _queue(
        20_000_000, "cost", "Most work that waits for one model, in its own unit: tokens, pixels, pages."
    )
    max_key_jobs: Count = _queue(5000, "jobs", "Most jobs of one caller that wait for one model.")
    max_held_bytes: Bytes = _queue(1 * GiB, "bytes", "Host memory for bodies and prepared inputs.")
    max_batch_cost: Annotated[Count | None, Maybe] = _queue(
        None, "cost", "Largest batch, in the model's own unit. Empty: as memory and targets allow."
    )
    preparation_threads: Count = _queue(2, "threads", "Threads that tokenise and decode.")
    preparation_backlog: Count = _queue(20000, "items", "Most items that wait for preparation.")

    file_bytes: Bytes = _batch(200 * MiB, "bytes", "Largest file that may be uploaded for a batch.")
    files_bytes: Bytes = _batch(
        4 * GiB, "bytes", "Most bytes of all files together; what batches answer is written beyond it."
    )
    file_days: Count = _batch(30, "days", "How long files and batches are kept.")
    batch_lines: Count = _batch(50_000, "lines", "Most lines of one batch.")
    batches_at_once: Count = _batch(16, "batches", "Most batches of one caller that have not ended.")

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
    given = everything(flags or {}, file, environ)
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


def _unknown(name: str, value: object) -> str:
    if isinstance(value, dict):
        return f"[{name}] is a table; the file is a flat list of keys, as port = 8080"
    if (key := name.removeprefix("SERAI_").lower()) != name and key in Settings.model_fields:
        return f"there is no setting {name!r}; the key is {key!r}"
    near = difflib.get_close_matches(name, Settings.model_fields, n=1)
    return f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
