"""Weights from safetensors files into memory of our own: sized from headers, read whole, given back whole.

Memory-mapped weights are no load on a CPU: their pages come in during the first batches and may leave
again. For another device they are what its copies are made from.
"""

from __future__ import annotations

import inspect
import itertools
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.adapters.forward import claims, dialects, linear, own
from engine.adapters.forward.headers import BadWeights as BadWeights
from engine.adapters.forward.headers import Stored as Stored
from engine.adapters.forward.headers import files
from engine.adapters.forward.headers import stored_in as stored_in
from engine.devices.host import trim

# Its lines go where all others go, and in their form; by itself it writes to stderr.
transformers_logging.disable_default_handler()
transformers_logging.enable_propagation()

M = TypeVar("M")

_BUILDING = threading.Lock()
"""transformers builds a model under process-wide switches (default dtype, patched initialisers)."""


def dtype_on(device: str, wanted: str, path: Path) -> torch.dtype:
    """The dtype in which a model is held on `device`.

    Always float32 on a CPU, where half precision is emulated and many times slower. `auto` is the
    dtype of most of the stored bytes.
    """
    if torch.device(device).type != "cuda":
        return torch.float32
    if wanted != "auto":
        return cast(torch.dtype, getattr(torch, wanted))
    sizes: dict[torch.dtype, int] = {}
    for stored in stored_tensors(path).values():
        if stored.dtype.is_floating_point:
            sizes[stored.dtype] = sizes.get(stored.dtype, 0) + stored.nbytes()
    return max(sizes, key=lambda dtype: sizes[dtype], default=torch.float32)


def likely_device(kinds: Sequence[str]) -> str:
    """Where a model with these kinds of device, in order of preference, will be held on this machine."""
    return next((kind for kind in kinds if kind != "cuda" or torch.cuda.is_available()), "cpu")


def weights_bytes(path: Path, dtype: torch.dtype | None = None, without: Collection[str] = ()) -> int:
    """Bytes that the weights take in memory, from headers alone. `without`: see `stored_tensors`."""
    return sum(stored.nbytes(dtype) for stored in stored_tensors(path, without).values())


def stored_tensors(path: Path, without: Collection[str] = ()) -> dict[str, Stored]:
    """What the safetensors of a model directory hold, by name, in the order of their bytes.

    `without` leaves out every tensor with one of these words between the dots of its name.
    """
    found = {name: stored for file in files(path) for name, stored in stored_in(file).items()}
    return {name: stored for name, stored in found.items() if not _left_out(name, without)}


def read(stored: Mapping[str, Stored], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The tensors themselves, in private memory, floating ones as `dtype`; no two copies at once."""
    tensors: dict[str, Tensor] = {}
    for file, group in itertools.groupby(stored.items(), lambda entry: entry[1].file):
        with open(file, "rb", buffering=0) as source:
            for name, entry in group:
                held = dtype if dtype is not None and entry.dtype.is_floating_point else entry.dtype
                tensors[name] = _read_one(source, entry).to(held)
    return tensors


def _read_one(source: FileIO, stored: Stored) -> Tensor:
    tensor = torch.empty(stored.numel, dtype=stored.dtype)
    target = memoryview(cast(Any, tensor.view(torch.uint8).numpy()))[: stored.nbytes()]
    source.seek(stored.start)
    while target:
        count = source.readinto(target)
        if not count:
            raise BadWeights(f"{stored.file} ends before its last tensor does")
        target = target[count:]
    return tensor.view(stored.shape)


def mapped(stored: Mapping[str, Stored]) -> dict[str, Tensor]:
    """The tensors as stored, on the pages of their files: to be copied to another device, not to be kept.

    Nothing is read before it is copied, and nothing is held twice in this process's own memory.
    """
    files = {entry.file for entry in stored.values()}
    pages = {file: torch.from_file(str(file), size=file.stat().st_size, dtype=torch.uint8) for file in files}
    return {name: _on(pages[entry.file], entry) for name, entry in stored.items()}


def _on(pages: Tensor, stored: Stored) -> Tensor:
    found = pages[stored.start : stored.start + stored.nbytes()]
    # Files of old writers are not aligned.
    aligned = found if stored.start % stored.dtype.itemsize == 0 else found.clone()
    return aligned.view(stored.dtype).view(stored.shape)


def load(
    auto: Any,
    path: Path,
    device: str,
    dtype: torch.dtype,
    *,
    without: Collection[str] = (),
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """What the transformers class `auto` (AutoModel, ...) makes of a directory, on `device`, for inference.

    Its tensors are those of the files, less what `without` leaves out. Raises BadWeights for files that
    lack one that the model needs.
    """
    stored = stored_tensors(path, without)
    believable(path)
    own.register()
    remote = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    config = own.configuration(_said(path), stored) or AutoConfig.from_pretrained(path, **remote)
    found = read(stored, dtype) if torch.device(device).type == "cpu" else mapped(stored)
    kind = type(skeleton(lambda: auto.from_config(config, trust_remote_code=trust_remote_code)))
    state = dialects.renamed(config.model_type, found)
    model = given(kind, config, state, dtype, without=without, where=str(path))
    return cast(PreTrainedModel, cast(Any, model).to(device).eval().requires_grad_(False))


def skeleton(make: Callable[[], M]) -> M:
    """What `make` builds, without memory for its weights."""
    with _BUILDING, torch.device("meta"):
        return make()


def given(
    kind: type[Any],
    config: Any,
    state: Mapping[str, Tensor],
    dtype: torch.dtype,
    *,
    without: Collection[str] = (),
    where: str,
) -> PreTrainedModel:
    """A transformers model of class `kind` with the tensors of `state`, which came from `where`.

    Raises BadWeights when they lack a weight that the model needs.
    """
    poolless = "pooler" in without and "add_pooling_layer" in inspect.signature(kind).parameters
    parts = {"add_pooling_layer": False} if poolless else {}
    network = skeleton(lambda: kind(config, **parts))
    with refusing(where):
        claims.fits(network, state)
        claims.whole(network, state)
    with _BUILDING:
        quiet = cast(Any, transformers_logging)
        quiet.disable_progress_bar()
        verbosity = quiet.get_verbosity()
        quiet.set_verbosity_error()  # its report of missing weights is our exception
        try:
            model, report = kind.from_pretrained(
                None,
                config=config,
                state_dict=state,
                dtype=dtype,
                output_loading_info=True,
                **parts,
            )
        finally:
            quiet.set_verbosity(verbosity)
    missing = sorted(name for name in report["missing_keys"] if not _left_out(name, without))
    if missing:
        raise BadWeights(f"{where} lacks {len(missing)} weights of {kind.__name__}: {', '.join(missing[:5])}")
    return cast(PreTrainedModel, model)


def believable(path: Path) -> None:
    """Raises BadWeights for a config.json with numbers that the tensors beside it cannot bear out.

    Nothing is built, nor is transformers asked: it makes a label for each that is claimed.
    """
    if not (path / "config.json").is_file():
        return
    try:
        shapes = [stored.shape for stored in stored_tensors(path).values()]
    except (OSError, ValueError):
        shapes = []  # of another format, or not to be read, which is said where it is read
    with refusing(f"{path}/config.json"):
        claims.check(_said(path), shapes)


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """A ValueError inside is BadWeights, with the file or directory that it is about."""
    try:
        yield
    except BadWeights:
        raise
    except ValueError as error:
        raise BadWeights(f"{where}: {error}") from error


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, each once, those that are never stored too."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def release(model: nn.Module) -> None:
    """Give a model's memory back to the system, though references to the model may remain."""
    devices = {tensor.device.type for tensor in model.parameters()}
    # emptied in place: no garbage collection is needed, which would stop every thread meanwhile
    linear.release(model)
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        tensor.data = torch.empty(0, dtype=tensor.dtype)
    if "cuda" in devices:
        torch.cuda.empty_cache()
    trim()


def model_config(path: Path) -> dict[str, Any]:
    """config.json, as the network here is configured. Raises BadWeights when there is none."""
    try:
        return dialects.translated(_said(path))
    except ValueError as error:
        raise BadWeights(f"{path} cannot be served: {error}") from error


def of_own_code(path: Path) -> bool:
    """Whether a network here stands in for modelling code that the repository brings."""
    return (path / "config.json").is_file() and model_config(path) != _said(path)


def _said(path: Path) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], json.loads((path / "config.json").read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path}/config.json cannot be read: {error}") from error


def _left_out(name: str, without: Collection[str]) -> bool:
    return any(word in without for word in name.split("."))
