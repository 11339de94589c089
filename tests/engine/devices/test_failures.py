from __future__ import annotations

import pytest
import torch

from engine.devices.failures import cuda_failed, out_of_memory

ASSERTED = "CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later."


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_ran_out_is_no_broken_card(error):
    assert out_of_memory(error) and not cuda_failed(error)


def test_the_code_of_an_error_counts_whatever_it_says():
    error = torch.AcceleratorError("CUDA error: no memory")
    error.error_code = 2  # as torch sets it

    assert out_of_memory(error) and not cuda_failed(error)


def test_the_hosts_allocator_is_known_by_what_it_says():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)

    assert out_of_memory(caught.value)


@pytest.mark.parametrize("error", [torch.AcceleratorError(ASSERTED), RuntimeError(ASSERTED)])
def test_a_failed_call_to_the_card_is_known(error):
    assert cuda_failed(error) and not out_of_memory(error)


@pytest.mark.parametrize("error", [ValueError("CUDA error: x"), RuntimeError("shapes differ"), KeyError(2)])
def test_a_models_own_mistake_is_neither(error):
    assert not out_of_memory(error) and not cuda_failed(error)
