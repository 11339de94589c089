"""What a configuration claims of a network, held against the tensors of its files before anything is built.

Building takes time and memory by what the configuration says, and a file of a few bytes can say anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

MODULES = 256
"""As many layers may always be built: that takes moments, and unused parts of a configuration name some."""
WIDTH = 1 << 19
"""As wide may any configuration be, for the same reason."""
ELEMENTS = 16 << 20
"""As many numbers may a network hold beside those that its files account for, as masks and positions."""
_COUNTED = frozenset(
    [
        *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_hidden_groups", "depth"),
        *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "layers"),
        *("num_experts", "num_local_experts", "n_routed_experts", "depths"),
    ]
)
"""Keys of what is built one by one, each of at least one tensor."""
_WIDE = frozenset(
    [
        *("vocab_size", "num_labels", "hidden_size", "intermediate_size", "d_model", "n_embd", "n_inner"),
        *("encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "embed_dim", "embedding_size", "projection_dim"),
        *("type_vocab_size", "num_queries", "hidden_sizes"),
    ]
)
"""Keys of what is one axis of a tensor."""
_POSITIVE = frozenset(["patch_size", "num_attention_heads"])
"""Keys by which others are divided."""


def check(said: Mapping[str, Any], shapes: Iterable[tuple[int, ...]]) -> None:
    """Raises ValueError for a number in a configuration (a JSON object) that its tensors cannot bear out."""
    known = tuple(shapes)
    widest = max((axis for shape in known for axis in shape), default=0)
    for key, value in _numbers(said):
        last = key.rpartition(".")[2]
        if last in _COUNTED and value > max(len(known), MODULES):
            raise ValueError(f"{key} is {value}, and the weights are {len(known)} tensors. Correct it")
        if last in _WIDE and value > max(widest, WIDTH):
            raise ValueError(f"{key} is {value}, and no axis of the weights is over {widest}. Correct it")
        if last in _POSITIVE and value < 1:
            raise ValueError(f"{key} is {value}; it is at least 1. Correct it")


def _numbers(said: Any, key: str = "") -> Iterator[tuple[str, int | float]]:
    """Every number, by its keys from the top."""
    match said:
        case bool():
            return
        case int() | float():
            yield key, said
        case list():
            for value in said:
                yield from _numbers(value, key)
        case dict():
            for name, value in said.items():
                yield from _numbers(value, f"{key}.{name}" if key else str(name))


def fits(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raises ValueError where a network without weights is of other sizes than the tensors for it."""
    mine = dict(network.named_parameters())
    prefix = f"{getattr(network, 'base_model_prefix', '')}."
    for name, tensor in state.items():
        wanted = next((mine[each] for each in _names(name, prefix) if each in mine), None)
        if wanted is not None and wanted.shape != tensor.shape:
            raise ValueError(
                f"{name} is {[*tensor.shape]} in the weights and {[*wanted.shape]} by the configuration. "
                "Correct the configuration, or get the weights that belong to it"
            )
    held = sum(each.numel() for each in (*mine.values(), *network.buffers()))
    stored = sum(tensor.nbytes for tensor in state.values())
    if held > 2 * stored + ELEMENTS:  # two in a byte are the smallest numbers there are
        raise ValueError(
            f"the configuration is of a network of {held} numbers, and its weights are {stored} bytes. "
            "Correct the configuration, or get the weights that belong to it"
        )


def whole(network: nn.Module, stored: Iterable[str]) -> None:
    """Raises ValueError where some of the tensors with these names are of layers after its last."""
    lists = {name: len(part) for name, part in network.named_modules() if isinstance(part, nn.ModuleList)}
    prefix = f"{getattr(network, 'base_model_prefix', '')}."
    known = getattr(network, "_keys_to_ignore_on_load_unexpected", None) or ()
    for name in stored:
        if any(re.search(pattern, name) for pattern in known):
            continue
        for found in re.finditer(r"\.(\d+)\.", name):
            number = int(found[1])
            held = [lists[each] for each in _names(name[: found.start()], prefix) if each in lists]
            if any(number >= length for length in held):
                raise ValueError(
                    f"the weights hold {name}, and by the configuration there are {held[0]} such layers. "
                    "Correct its number of layers"
                )


def _names(name: str, prefix: str) -> tuple[str, ...]:
    """As a tensor may be called in a network, with or without a head on it."""
    return name, prefix + name, name.removeprefix(prefix)
