"""What an error says of the device that it happened on."""

from __future__ import annotations

CUDA_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation."""

SPENT = ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: ")
"""In a plain RuntimeError: memory ran out for the driver, for cuBLAS or cuDNN, on the host."""


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` is an allocator's. By name: torch need not be there."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if getattr(error, "error_code", None) == CUDA_OUT_OF_MEMORY:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SPENT)


def cuda_failed(error: BaseException) -> bool:
    """Whether a call to CUDA failed for another reason than memory. Most such errors are for ever: a wrong
    address or a failed assertion on the card ends its context, and with it all that lies there."""
    if out_of_memory(error):
        return False
    if type(error).__name__ == "AcceleratorError":
        return True
    return isinstance(error, RuntimeError) and "CUDA error: " in str(error)
