"""A model's weights out of a device into one block of host memory, and back by one copy."""

from __future__ import annotations

import contextlib
import logging
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.adapters.family import Parkable

log = logging.getLogger(__name__)

ALIGNMENT = 512
"""Bytes between the beginnings of two storages: what CUDA's allocator gives, and enough for any dtype."""
PORTABLE = 1
"""cudaHostRegisterPortable: locked for every card, so that weights may come back to another one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the values of one tensor lie in a block."""

    tensor: Tensor
    start: int
    dtype: torch.dtype
    shape: torch.Size
    stride: Sequence[int | torch.SymInt]

    def within(self, block: Tensor) -> Tensor:
        typed = block.view(self.dtype)
        return typed.as_strided(self.shape, self.stride, self.start // self.dtype.itemsize)


class HostBlock:
    """Bytes of host memory of their own, so that they go back to the system when they are released.

    `locked` asks CUDA to lock the pages: copies then run at the full speed of the bus, beside
    computing. torch's own pinned memory would round sizes up to powers of two and keep them for ever.
    The locking was not run on the machines this was built on.
    """

    def __init__(self, nbytes: int, *, locked: bool) -> None:
        pages = mmap.mmap(-1, max(nbytes, ALIGNMENT))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        self.bytes = torch.frombuffer(pages, dtype=torch.uint8, count=nbytes) if nbytes else _nothing()
        self._locked = locked and _lock(self.bytes)

    def release(self) -> None:
        if self._locked:
            runtime: Any = torch.cuda.cudart()
            if code := int(runtime.cudaHostUnregister(self.bytes.data_ptr())):
                log.warning("host memory could not be unlocked: CUDA error %d", code)  # its card is lost
            self._locked = False
        self.bytes = _nothing()  # the last reference: the mapping goes with it


class ParkedTensors:
    """A model without its weights, and the weights. Not for two threads at once."""

    def __init__(self, model: Parkable, places: Sequence[Place], block: HostBlock) -> None:
        self.model = model
        self.nbytes = block.bytes.nbytes
        self._places = places
        self._block = block

    def restore(self, name: str) -> None:
        """The model's tensors have their values again, on the device of this name, by one copy."""
        device = torch.device(name)
        block = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
        block.copy_(self._block.bytes, non_blocking=True)
        _wait(device)
        for place in self._places:
            place.tensor.data = place.within(block)

    def release(self) -> None:
        """Give the host memory back."""
        self._block.release()


def park(model: Parkable, name: str) -> ParkedTensors:
    """Copies what the model holds on the device of this name and lets go of it there. All or nothing.

    Tensors that share memory (tied weights, views) share it in the block, and do again afterwards.
    What has no storage to copy (weights rearranged for a CPU) stays where it is.
    """
    device = torch.device(name)
    tensors = [tensor for tensor in model.tensors().values() if _movable(tensor, device)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    starts, size = _layout(storages)
    block = HostBlock(size, locked=device.type == "cuda")
    try:
        for address, storage in storages.items():
            source = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
            begin = starts[address]
            block.bytes[begin : begin + len(source)].copy_(source, non_blocking=True)
        _wait(device)
    except BaseException:
        block.release()
        raise
    places = [_place(tensor, starts) for tensor in tensors]
    for tensor in tensors:
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=device)
    return ParkedTensors(model, places, block)


def _movable(tensor: Tensor, device: torch.device) -> bool:
    return (
        tensor.layout is torch.strided and tensor.device == device and tensor.untyped_storage().nbytes() > 0
    )


def _layout(storages: Mapping[int, torch.UntypedStorage]) -> tuple[dict[int, int], int]:
    """Where each storage begins in a block, and how large the block is."""
    starts, end = {}, 0
    for address, storage in storages.items():
        starts[address] = end
        end += -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT
    return starts, end


def _place(tensor: Tensor, starts: Mapping[int, int]) -> Place:
    start = starts[tensor.untyped_storage().data_ptr()] + int(tensor.storage_offset()) * tensor.itemsize
    return Place(tensor, start, tensor.dtype, tensor.shape, tensor.stride())


def _wait(device: torch.device) -> None:
    """For the copies that this thread began."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _lock(block: Tensor) -> bool:
    """Whether the pages are locked now. Where they cannot be, copies are slower and as good."""
    runtime: Any = torch.cuda.cudart()
    code = int(runtime.cudaHostRegister(block.data_ptr(), block.nbytes, PORTABLE))
    if code == 0:
        return True
    log.warning("%d bytes of host memory cannot be page-locked: CUDA error %d", block.nbytes, code)
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")  # the next kernel would be blamed for this thread's last error
    return False


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.uint8)
