"""Text generation by any decoder of transformers that uses its attention interface and `position_ids`.

Llama, SmolLM, Qwen 2 and 3, Mistral, Gemma 3 and their like. Recurrent and soft-capped attention, and
rotary scaling that depends on the longest neighbour, are refused at load rather than served wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import linear, weights
from engine.adapters.generation import kv, sampling
from engine.adapters.generation.chat import Chat
from engine.adapters.generation.decoder import Decoder
from engine.adapters.generation.sequences import Prompt
from engine.adapters.generation.vocabulary import Grammar, Vocabulary
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.tokens import known, text_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import GenerateOptions, Item, Options, Task, Usage

CHUNK = 512
"""Prompt tokens of one step, where the catalogue entry has no `max_batch_cost`."""
RUNNING = 16
"""Sequences at once, where the catalogue entry has no `max_running`."""


class CausalLM:
    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.GENERATE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """Workspace is a constant: however long the prompts, a step takes no more than a chunk of them."""
        config = _text_config(spec, path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        shape = _shape(config, dtype)
        heads = config.num_attention_heads * shape.head_dim
        # Live at once in a layer: residual and normed input, query, key, value and their rotated
        # copies, attention's output; or the two halves of the feed-forward layer and their product.
        values = 4 * config.hidden_size + 4 * heads + max(3 * config.intermediate_size, 2 * heads)
        row = values * dtype.itemsize
        mask = 5 * _context(spec, config)  # boolean, and as SDPA expands it
        logits = 4 * 4 * config.vocab_size  # float32: as they came, adjusted, as chances, summed up
        running = spec.limits.max_running or RUNNING
        return Footprint(
            weights_bytes=weights.weights_bytes(path, dtype),
            workspace_base=_chunk(spec) * (row + mask) + running * (row + logits),
            kv_bytes_per_token=shape.bytes_per_token,
        )

    def preparer(self, spec: ModelSpec, path: Path) -> Prompts:
        config = _text_config(spec, path)
        context = _context(spec, config)
        chat = Chat(path, context, spec.trust_remote_code)
        size = int(config.vocab_size)
        return Prompts(chat, context, Vocabulary(chat.backend, size, _eos(path, config)), size)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Decoder:
        config = _text_config(spec, path)
        _refuse(config)
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(
            AutoModelForCausalLM, path, device, dtype, trust_remote_code=spec.trust_remote_code
        )
        kv.register()
        model.set_attn_implementation(kv.NAME)
        linear.pack(model)
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        decoder = Decoder(model, tokenizer, _shape(config, dtype), _eos(path, config), _chunk(spec))
        decoder.warm()
        return decoder


class Prompts:
    """Turns prompts and conversations into tokens.

    A prompt that leaves no token of the model's length is `InputTooLong`; one that leaves fewer
    than `max_new_tokens` gets what is left.
    """

    def __init__(self, chat: Chat, context: int, vocabulary: Vocabulary, size: int) -> None:
        self._chat = chat
        self.cutter = Cutter(chat.backend)
        self._context = context
        self._vocabulary = vocabulary
        self._size = size

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.GENERATE or not isinstance(options, GenerateOptions):
            raise InvalidInput(f"this model generates text; it cannot {task}")
        sampling.check(options, self._size)
        grammar = self._vocabulary.grammar(options.grammar) if options.grammar else None
        return [self._one(item, options, grammar, at) for at, item in enumerate(items)]

    def _one(
        self, item: Item, options: GenerateOptions, grammar: Grammar | None, at: int
    ) -> Prepared | EngineError:
        try:
            ids = self._tokens(item, options, at)
        except EngineError as error:
            return error.at(at)
        if not ids:
            return InvalidInput("the prompt is empty", item=at)
        left = self._context - len(ids)
        if left < 1:
            return InputTooLong(
                f"the prompt has {len(ids)} tokens; the model takes {self._context}, answer included",
                item=at,
                length=len(ids),
                max_length=self._context,
            )
        prompt = Prompt(
            np.array(ids, np.int32),
            replace(options, messages=(), tools=()),
            min(options.max_new_tokens, left),
            tuple(self._chat.special[stop] for stop in options.stop if stop in self._chat.special),
            grammar,
            None if options.top_logprobs is None else self._vocabulary.spelled,
        )
        return Prepared(
            cost=len(ids),
            payload=prompt,
            nbytes=prompt.ids.nbytes,
            usage=Usage(input_tokens=len(ids)),
            kv_tokens=len(ids) + prompt.max_new_tokens,
        )

    def _tokens(self, item: Item, options: GenerateOptions, at: int) -> list[int]:
        if options.messages and item.text:
            raise InvalidInput("send a prompt or messages, not both")
        if options.messages:
            return self._chat.conversation(options.messages, options.tools)
        if item.tokens is not None:
            return known(item.tokens, self._size, at)
        text = text_of(item, at)
        return self._chat.raw(text) if options.raw else self._chat.prompt(text)


def _text_config(spec: ModelSpec, path: Path) -> Any:
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    return config.get_text_config()


def _context(spec: ModelSpec, config: Any) -> int:
    """Tokens of prompt and answer together: the model's positions, or fewer if the entry says so."""
    positions = int(config.max_position_embeddings)
    return min(positions, spec.max_tokens or positions)


def _chunk(spec: ModelSpec) -> int:
    """Prompt tokens that one step may take."""
    return spec.limits.max_batch_cost or CHUNK


def _shape(config: Any, dtype: torch.dtype) -> kv.Shape:
    heads = config.num_attention_heads
    return kv.Shape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
    )


def _eos(path: Path, config: Any) -> frozenset[int]:
    """Tokens that end an answer: of the generation configuration, else of the model's."""
    ids = config.eos_token_id
    if (path / "generation_config.json").exists():
        ids = GenerationConfig.from_pretrained(path, local_files_only=True).eos_token_id or ids
    return frozenset([ids] if isinstance(ids, int) else ids or ())


def _refuse(config: Any) -> None:
    """Raises ValueError for what the packed attention would get wrong without saying so."""
    strange = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if strange:
        raise ValueError(f"layers of type {', '.join(sorted(strange))} cannot be served")
    if getattr(config, "attn_logit_softcapping", None):
        raise ValueError("soft-capped attention cannot be served")
    moving = {"dynamic", "longrope"} & set(_rope_types(getattr(config, "rope_parameters", None) or {}))
    if moving:
        raise ValueError(f"rotary scaling {moving.pop()!r} makes neighbours change each other's answers")


def _rope_types(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Of one set of parameters, or of one per layer type."""
    for key, value in parameters.items():
        if key == "rope_type":
            yield value
        elif isinstance(value, Mapping):
            yield from _rope_types(value)


FAMILY = CausalLM()
