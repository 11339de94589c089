"""What a model that sees makes of images, and of prompts with images in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.generation.kinds import Block, Kind
from engine.adapters.generation.kv import Step
from engine.adapters.generation.pace import Pace
from engine.adapters.generation.sequences import Prompt
from engine.adapters.generation.views import Glance, View, flat


class Sight:
    """The network of one model that sees; `kind` says how."""

    def __init__(self, model: PreTrainedModel, kind: Kind, token: int, images: Any, levels: int) -> None:
        """`images`: transformers' image processor. `levels`: how many layers are given features of images."""
        self._model: Any = model
        self._kind = kind
        self._token = token
        self._levels = levels
        self._scale = float(images.rescale_factor) if images.do_rescale else 1.0
        self._mean = torch.tensor(images.image_mean if images.do_normalize else [0.0] * 3)
        self._std = torch.tensor(images.image_std if images.do_normalize else [1.0] * 3)
        self._pace = Pace()

    def view(self, prompt: Prompt) -> View | None:
        """Room for the features of a prompt's images. Raises torch.OutOfMemoryError."""
        if not prompt.glances and self._kind.block is not Block.PROMPT:
            return None
        places = np.flatnonzero(prompt.ids == self._token)
        model = self._model
        size = (self._levels, len(places), model.get_input_embeddings().weight.shape[1])
        features = torch.empty(size, dtype=model.dtype, device=model.device)
        return View(prompt.glances, places, features, self._positions(prompt), self._blocks(prompt, places))

    def _blocks(self, prompt: Prompt, places: NDArray[np.intp]) -> list[tuple[int, int]]:
        match self._kind.block:
            case Block.NONE:
                return []
            case Block.PROMPT:
                return [(0, len(prompt.ids))]
            case Block.IMAGE:
                ends = np.cumsum([glance.tokens for glance in prompt.glances])
                begins = ends - [glance.tokens for glance in prompt.glances]
                return [(int(places[a]), int(places[b - 1]) + 1) for a, b in zip(begins, ends, strict=True)]

    def looks(self, glance: Glance, seconds: float) -> bool:
        """Whether it is predicted to be seen in time."""
        return self._pace.seconds(glance.patches) <= seconds

    def look(self, view: View) -> None:
        """At the next of its images. Raises torch.OutOfMemoryError."""
        began = time.perf_counter()
        glance = view.waiting[0]
        view.see(self.features(glance))
        if view.nbytes and self._model.device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # its time is wanted
        self._pace.observe(glance.patches, time.perf_counter() - began)

    def features(self, glance: Glance) -> Tensor:
        """(levels, tokens, hidden)."""
        device = self._model.device
        inputs = {name: torch.from_numpy(values).to(device) for name, values in glance.inputs.items()}
        inputs["pixel_values"] = self._normal(inputs["pixel_values"])
        made = self._model.get_image_features(**inputs, return_dict=True)
        hidden = self._model.get_input_embeddings().weight.shape[1]
        first = made.pooler_output
        rows = first if isinstance(first, Tensor) else torch.cat(list(first))
        deeper = getattr(made, "deepstack_features", None) or ()
        return torch.stack([rows.reshape(-1, hidden), *(each.reshape(-1, hidden) for each in deeper)])

    def logits(
        self, step: Step, ids: Sequence[int], last: Sequence[int], views: Sequence[View | None]
    ) -> Tensor:
        """(len(last), vocabulary) of the rows in `last`; `views` are of the step's segments."""
        model = self._model
        rows = model.get_input_embeddings()(torch.tensor([ids], device=model.device))
        rows, deeper = self._shown(rows, step, views)
        hidden = model.get_decoder()(
            inputs_embeds=rows,
            position_ids=self._places(step, views).to(model.device),
            use_cache=False,
            step=step,
            **deeper,
        ).last_hidden_state
        kept: Tensor = model.get_output_embeddings()(hidden[0, torch.tensor(last, dtype=torch.long)])
        return kept

    def _shown(self, rows: Tensor, step: Step, views: Sequence[View | None]) -> tuple[Tensor, dict[str, Any]]:
        """The rows with images in their places, and what deeper layers are given of these."""
        places: list[np.ndarray[Any, Any]] = []
        found: list[Tensor] = []
        begin = 0
        for segment, view in zip(step.segments, views, strict=True):
            if view is not None:
                inside, features = view.within(segment.cache.length, segment.count)
                places.append(inside + begin)
                found.append(features)
            begin += segment.count
        at = torch.from_numpy(np.concatenate(places)) if places else torch.empty(0)
        if not len(at):
            return rows, {}
        at, features = at.to(rows.device), torch.cat(found, 1)
        rows = rows.index_copy(1, at, features[:1])
        if self._levels == 1:
            return rows, {}
        mask = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        mask[0, at] = True
        return rows, {"visual_pos_masks": mask, "deepstack_visual_embeds": list(features[1:])}

    def _places(self, step: Step, views: Sequence[View | None]) -> Tensor:
        if not self._kind.moving:
            return torch.tensor([step.positions()]) + self._kind.first
        found = [
            flat(s.cache.length, s.count) if view is None else view.positions(s.cache.length, s.count)
            for s, view in zip(step.segments, views, strict=True)
        ]
        return torch.from_numpy(np.concatenate(found, 1))[:, None]

    def _positions(self, prompt: Prompt) -> np.ndarray[Any, Any] | None:
        """By the model's own rule."""
        if not self._kind.moving:
            return None
        ids = torch.from_numpy(prompt.ids.astype(np.int64))[None]
        grids = torch.from_numpy(np.concatenate([g.inputs["image_grid_thw"] for g in prompt.glances]))
        kinds = (ids == self._token).int()  # of images; 0 for words
        found: Tensor = self._model.model.get_rope_index(ids, kinds, image_grid_thw=grids)[0]
        return np.asarray(found[:, 0])

    def _normal(self, pixels: Tensor) -> Tensor:
        """Scaled and normalised as the image processor would have, of (..., 3, height, width) or of rows
        whose first third is of the first channel."""
        mean, std = self._mean.to(pixels.device), self._std.to(pixels.device)
        if pixels.ndim == 2:
            mean, std = (each.repeat_interleave(pixels.shape[1] // 3) for each in (mean, std))
        else:
            mean, std = mean[:, None, None], std[:, None, None]
        normal: Tensor = (pixels.float() * self._scale - mean) / std
        return normal.to(self._model.dtype)
