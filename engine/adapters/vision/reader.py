"""Messages of texts and images through a Qwen3-VL: packed, all kinds side by side.

Positions of each message are its own (M-RoPE), and attention stays inside it. Images of a pass go through the
vision tower together, which attends inside each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from engine.adapters.family import Footprint
from engine.adapters.forward import attention, linear, weights
from engine.adapters.forward.packed import CHUNK, workspace_per_token
from engine.adapters.forward.packing import Layout
from engine.adapters.preparing.images import decode
from engine.adapters.vision.messages import KIND, Message, Shown
from engine.adapters.vision.processors import CHANNELS, Seen
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput

BASE_BYTES = 32 << 20
COPIES = 16
"""Rows as wide as the vision tower that one of its layers holds at once for each patch."""
UNUSED = frozenset(["lm_head"])
Vector = Tensor | EngineError


class Reader:
    """Weights of one network that reads and sees, and gives the vector of a message's last token."""

    def __init__(self, model: PreTrainedModel, shown: Shown) -> None:
        self._model: Any = model
        self._shown = shown
        linear.pack(model)
        attention.register()
        cast(Any, model).language_model.set_attn_implementation(attention.NAME)
        self._budget = CHUNK.get(model.device.type, CHUNK["cpu"])

    def vectors(self, messages: Iterable[Message]) -> dict[int, Vector]:
        """By identity: each once, though it may be the query of many jobs. float32, on the CPU."""
        own = {id(message): message for message in messages}
        with torch.inference_mode():
            return self._vectors(list(own.values()))

    def _vectors(self, messages: Sequence[Message]) -> dict[int, Vector]:
        made: dict[int, Vector] = {}
        seen: list[tuple[Message, list[Seen]]] = []
        for message in messages:
            try:
                seen.append((message, [self._see(message, place) for place in range(len(message.pictures))]))
            except EngineError as error:
                made[id(message)] = error
        if seen:
            rows = self._read([message for message, _ in seen], [pictures for _, pictures in seen])
            made |= {id(message): row for (message, _), row in zip(seen, rows, strict=True)}
        return made

    def _see(self, message: Message, place: int) -> Seen:
        """Raises InvalidInput for a damaged image."""
        picture = message.pictures[place]
        try:
            return self._shown.see(decode(picture.image))
        except InvalidInput as error:
            raise error.at(picture.index) from None

    def _read(self, messages: Sequence[Message], seen: Sequence[list[Seen]]) -> list[Tensor]:
        """The vector of each message's last token, float32 on the CPU."""
        layout = Layout([len(message.ids) for message in messages])
        found: dict[int, Tensor] = {}
        for places, _ in layout.chunks(self._budget):
            chosen, part = layout.order[places].tolist(), layout.part(places)
            states = self._states([messages[at].ids for at in chosen], [seen[at] for at in chosen], part)
            last = states[torch.from_numpy(part.ends - 1).to(states.device)].float().cpu()
            found.update(zip(chosen, last, strict=True))
        return [found[at] for at in range(len(messages))]

    def _states(self, sequences: Sequence[Any], seen: Sequence[list[Seen]], layout: Layout) -> Tensor:
        """(tokens, width), in the order given, which is the layout's own."""
        device, model = self._model.device, self._model
        ids = torch.from_numpy(np.concatenate(sequences).astype(np.int64)).to(device)[None]
        positions = [self._positions(each, pictures) for each, pictures in zip(sequences, seen, strict=True)]
        rows = torch.cat(positions, dim=-1).to(device)
        embedded = model.get_input_embeddings()(ids)
        images = [picture for pictures in seen for picture in pictures]
        shown: dict[str, Any] = {}
        if images:
            places = ids == model.config.image_token_id
            features = self._features(images)
            whole = torch.cat(tuple(features.pooler_output)).to(embedded.dtype)
            embedded = embedded.masked_scatter(places[..., None].expand_as(embedded), whole)
            shown = {"visual_pos_masks": places, "deepstack_visual_embeds": features.deepstack_features}
        return cast(
            Tensor,
            model.language_model(
                inputs_embeds=embedded, position_ids=rows, packing=layout, use_cache=False, **shown
            ).last_hidden_state[0],
        )

    def _positions(self, ids: Any, seen: Sequence[Seen]) -> Tensor:
        """(4, 1, tokens) of one message: its own places, then those in time, height and width."""
        own = torch.arange(len(ids))[None, None]
        if not seen:
            return own.expand(4, 1, -1)
        row = torch.from_numpy(np.asarray(ids, np.int64))[None]
        grids = torch.from_numpy(np.stack([picture["image_grid_thw"] for picture in seen]))
        kinds = (row == self._model.config.image_token_id).int()
        turned, _ = self._model.get_rope_index(row, mm_token_type_ids=kinds, image_grid_thw=grids)
        return torch.cat([own, turned])

    def _features(self, images: Sequence[Seen]) -> Any:
        pixels = torch.from_numpy(np.concatenate([each["pixel_values"] for each in images]))
        grids = torch.from_numpy(np.stack([each["image_grid_thw"] for each in images]))
        device = self._model.device
        return self._model.get_image_features(pixels.to(device, self._model.dtype), grids.to(device))

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


def footprint(spec: ModelSpec, path: Path) -> Footprint:
    """Raises BadWeights for a directory of another kind."""
    config = weights.model_config(path)
    if config.get("model_type") != KIND:
        raise weights.BadWeights(f"{path} is a {config.get('model_type')}; {KIND} is served")
    text, vision = config["text_config"], config["vision_config"]
    dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
    pixels = CHANNELS * int(vision["patch_size"]) ** 2 * int(vision.get("temporal_patch_size", 2)) * 4
    patches = int(vision.get("spatial_merge_size", 2)) ** 2
    per_token = workspace_per_token({**text, "model_type": "qwen3"}, dtype.itemsize)
    per_token += patches * (pixels + COPIES * int(vision["hidden_size"]) * dtype.itemsize)
    return Footprint(weights.weights_bytes(path, dtype, UNUSED), BASE_BYTES, per_token)


def load(spec: ModelSpec, path: Path, device: str) -> Reader:
    dtype = weights.dtype_on(device, spec.dtype, path)
    return Reader(weights.load(AutoModel, path, device, dtype, without=UNUSED), Shown(spec, path))
