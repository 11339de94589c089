"""Text generation by any decoder of transformers that uses its attention interface and `position_ids`.

Llama, SmolLM, Qwen 2 and 3, Mistral, Gemma 2 and 3, Phi 3 and 4, Granite, OLMo 2 and their like. Recurrent
attention, and rotary scaling that depends on the longest neighbour, are refused at load rather than served
wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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

if TYPE_CHECKING:
    from engine.adapters.generation.eyes import Eyes

CHUNK = 512
"""Prompt tokens of one step, where the catalogue entry has no `max_batch_cost`."""
RUNNING = 16
"""Sequences at once, where the catalogue entry has no `max_running`."""


class CausalLM:
    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.GENERATE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """Workspace is a constant: however long the prompts, a step takes no more than a chunk of them."""
        config = text_config_of(spec, path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        shape = shape_of(config, dtype)
        heads = config.num_attention_heads * shape.head_dim
        # Live at once in a layer: residual and normed input, query, key, value and their rotated
        # copies, attention's output; or the two halves of the feed-forward layer and their product.
        values = 4 * config.hidden_size + 4 * heads + max(3 * config.intermediate_size, 2 * heads)
        row = values * dtype.itemsize
        context = context_of(spec, config)
        mask = 5 * context  # boolean, and as SDPA expands it
        if getattr(config, "attn_logit_softcapping", None):
            mask += 3 * 4 * config.num_attention_heads * context  # scores, capped scores, chances
        logits = 4 * 4 * config.vocab_size  # float32: as they came, adjusted, as chances, summed up
        running = spec.limits.max_running or RUNNING
        return Footprint(
            weights_bytes=weights.weights_bytes(path, dtype),
            workspace_base=chunk_of(spec) * (row + mask) + running * (row + logits),
            kv_bytes_per_token=shape.bytes_per_token,
        )

    def preparer(self, spec: ModelSpec, path: Path) -> Prompts:
        config = text_config_of(spec, path)
        context = context_of(spec, config)
        chat = Chat(path, context, spec.trust_remote_code)
        size = int(config.vocab_size)
        return Prompts(chat, context, Vocabulary(chat.backend, size, eos_of(path, config)), size)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Decoder:
        config = text_config_of(spec, path)
        refuse(config, context_of(spec, config))
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(
            AutoModelForCausalLM, path, device, dtype, trust_remote_code=spec.trust_remote_code
        )
        kv.register()
        model.set_attn_implementation(kv.NAME)
        linear.pack(model)
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        decoder = Decoder(model, tokenizer, shape_of(config, dtype), eos_of(path, config), chunk_of(spec))
        decoder.warm()
        return decoder


class Prompts:
    """Turns prompts and conversations into tokens.

    A prompt that leaves no token of the model's length is `InputTooLong`; one that leaves fewer
    than `max_new_tokens` gets what is left.
    """

    def __init__(
        self, chat: Chat, context: int, vocabulary: Vocabulary, size: int, eyes: Eyes | None = None
    ) -> None:
        """`eyes`: of a model that sees."""
        self._chat = chat
        self._eyes = eyes
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
            shown = self._eyes.see(item.images) if self._eyes else []
            ids = self._tokens(item, options, at, [each.spelled for each in shown])
            if self._eyes:
                self._eyes.check(ids, shown)
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
            glances=tuple(glance for each in shown for glance in each.glances),
        )
        return Prepared(
            cost=len(ids),
            payload=prompt,
            nbytes=prompt.ids.nbytes + sum(glance.nbytes for glance in prompt.glances),
            usage=Usage(input_tokens=len(ids), images=len(shown)),
            kv_tokens=prompt.most_tokens + (self._eyes.kv_tokens(shown) if self._eyes else 0),
        )

    def _tokens(self, item: Item, options: GenerateOptions, at: int, pictures: Sequence[str]) -> list[int]:
        """`pictures`: what stands in the prompt for each image."""
        if options.messages and item.text:
            raise InvalidInput("send a prompt or messages, not both")
        if item.images and not self._eyes:
            raise InvalidInput("this model takes text only; leave the images out")
        if options.messages:
            return self._chat.conversation(options.messages, options.tools, pictures)
        if item.tokens is not None:
            return known(item.tokens, self._size, at)
        text = text_of(Item(text=item.text), at)
        return self._chat.raw(text, pictures) if options.raw else self._chat.prompt(text, pictures)


def text_config_of(spec: ModelSpec, path: Path) -> Any:
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    return config.get_text_config()


def context_of(spec: ModelSpec, config: Any) -> int:
    """Tokens of prompt and answer together: the model's positions, or fewer if the entry says so."""
    positions = int(config.max_position_embeddings)
    return min(positions, spec.max_tokens or positions)


def chunk_of(spec: ModelSpec) -> int:
    """Prompt tokens that one step may take."""
    return spec.limits.max_batch_cost or CHUNK


def shape_of(config: Any, dtype: torch.dtype) -> kv.Shape:
    heads = config.num_attention_heads
    return kv.Shape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
    )


def eos_of(path: Path, config: Any) -> frozenset[int]:
    """Tokens that end an answer: of the generation configuration, else of the model's."""
    ids = config.eos_token_id
    if (path / "generation_config.json").exists():
        ids = GenerationConfig.from_pretrained(path, local_files_only=True).eos_token_id or ids
    return frozenset([ids] if isinstance(ids, int) else ids or ())


def refuse(config: Any, context: int) -> None:
    """Raises ValueError for what the packed attention would get wrong without saying so."""
    strange = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if strange:
        raise ValueError(f"layers of type {', '.join(sorted(strange))} cannot be served")
    parameters = getattr(config, "rope_parameters", None) or {}
    moving = {"dynamic", "longrope"} & set(_rope_types(parameters))
    still = int(parameters.get("original_max_position_embeddings") or 0)
    if moving and context > still:
        said = f"rotary scaling {moving.pop()!r} makes neighbours change each other's answers"
        raise ValueError(f"{said}; with max_tokens: {still} it has none" if still else said)


def _rope_types(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Of one set of parameters, or of one per layer type."""
    for key, value in parameters.items():
        if key == "rope_type":
            yield value
        elif isinstance(value, Mapping):
            yield from _rope_types(value)


FAMILY = CausalLM()
