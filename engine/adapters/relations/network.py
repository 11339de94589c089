"""What stands behind a GLiREL's encoder, by the names of its own tensors. Own code: the library brings much
that serving does not need, and pads where this does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, multi_head_attention_forward, softplus
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedModel

from engine.adapters.forward.packed import Encoder
from engine.adapters.forward.weights import BadWeights
from engine.adapters.relations.directory import ENCODER, Directory
from engine.adapters.relations.jobs import RelationsJob, Window

PAIRS = {"cpu": 1024, "cuda": 16384}
"""That are judged at once."""
RNN = "rnn.lstm."
HEAD = 64
"""Numbers of each attention head that refines."""
EPSILON = 1e-5


class Layers(nn.Module):
    """Tensors of a checkpoint, less its encoder's, and what is done with them."""

    def __init__(self, state: Mapping[str, Tensor], hidden: int) -> None:
        """Raises BadWeights when one is missing that every GLiREL has."""
        super().__init__()
        self.rnn = nn.LSTM(hidden, hidden // 2, bidirectional=True, batch_first=True)
        held = {name.removeprefix(RNN): state[name] for name in state if name.startswith(RNN)}
        self._names = {name: name.replace(".", "/") for name in state if not name.startswith((ENCODER, RNN))}
        for name, key in self._names.items():
            self.register_buffer(key, state[name])
        if missing := self.rnn.load_state_dict(held, strict=False, assign=True).missing_keys:
            raise BadWeights(f"the checkpoint lacks {len(missing)} weights: {RNN}{missing[0]}, ...")

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise BadWeights(f"the checkpoint lacks {name}")
        return cast(Tensor, getattr(self, self._names[name]))

    def linear(self, name: str, rows: Tensor) -> Tensor:
        return linear(rows, self[f"{name}.weight"], self[f"{name}.bias"])

    def twice(self, name: str, rows: Tensor, second: int = 3) -> Tensor:
        """A layer, a rectifier and a layer."""
        return self.linear(f"{name}.{second}", self.linear(f"{name}.0", rows).relu())

    def norm(self, name: str, rows: Tensor) -> Tensor:
        return layer_norm(rows, rows.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], EPSILON)


class Network:
    """Threads may share it."""

    def __init__(self, directory: Directory, encoder: PreTrainedModel, layers: Layers) -> None:
        self.module = nn.ModuleList([encoder, layers])
        self._layers, self._shape = layers, directory.shape
        self._encoder = Encoder(encoder)
        kind = next(encoder.parameters()).device.type
        self._most = PAIRS.get(kind, PAIRS["cpu"])
        self._first, self._last = ("first" in directory.shape.pooling, "last" in directory.shape.pooling)

    def see(self, jobs: Sequence[RelationsJob]) -> list[list[NDArray[np.float32]]]:
        """For each job and window the chances (pairs, relations)."""
        windows = [(job, window) for job in jobs for window in job.windows]
        if not windows:
            return [[] for _ in jobs]
        with torch.inference_mode():
            hidden = self._encoder.hidden([window.ids for _, window in windows])
            words = [self._words(hidden.of(place), window) for place, (_, window) in enumerate(windows)]
            read = self._read([rows[job.lead :] for rows, (job, _) in zip(words, windows, strict=True)])
            found = iter(
                [
                    self._judged(job, window, rows[: job.lead], text)
                    for rows, text, (job, window) in zip(words, read, windows, strict=True)
                ]
            )
        return [[next(found) for _ in job.windows] for job in jobs]

    def _words(self, states: Tensor, window: Window) -> Tensor:
        """(words, hidden): a word without tokens is nothing."""
        starts = torch.from_numpy(window.starts).to(states.device)
        sizes = starts.diff()
        some = (sizes > 0)[:, None]
        if self._shape.pooling == "mean":
            of = torch.arange(len(sizes), device=states.device).repeat_interleave(sizes)
            # the library divides a copy and goes on with the sum, which its models have learned from
            rows = states.new_zeros(len(sizes), states.shape[1])
            rows.index_add_(0, of, states[window.starts[0] : window.starts[-1]])
        else:
            parts = [states[starts[:-1].clamp(max=len(states) - 1)]] if self._first else []
            parts += [states[(starts[1:] - 1).clamp(min=0)]] if self._last else []
            rows = torch.cat([part * some for part in parts], 1)
        if "token_rep_layer.projection.weight" in self._layers:
            return self._layers.linear("token_rep_layer.projection", rows)
        return rows

    def _read(self, texts: Sequence[Tensor]) -> list[Tensor]:
        """By an LSTM in both directions."""
        lengths = [len(text) for text in texts]
        padded = nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
        packed = pack_padded_sequence(padded, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(self._layers.rnn(packed)[0], batch_first=True)
        return [rows[:length] for rows, length in zip(read, lengths, strict=True)]

    def _judged(self, job: RelationsJob, window: Window, before: Tensor, text: Tensor) -> NDArray[np.float32]:
        places = torch.from_numpy(window.places).to(text.device)
        entities, labels = self._entities(text, places), self._labels(before)
        pairs = torch.from_numpy(window.pairs).to(text.device)
        found = []
        for some in pairs.split(self._most):
            both = torch.cat([entities[some[:, 0]], entities[some[:, 1]]], 1)
            related = self._layers.twice("span_rep_layer.rel_rep_layer.out_project", both)
            if "refine_relation.output.weight" in self._layers:
                related = self._refined("refine_relation", related, text)
            found.append(self._scored(related, labels).float().sigmoid().cpu().numpy())
        return np.concatenate(found)

    def _entities(self, text: Tensor, places: Tensor) -> Tensor:
        name = "span_rep_layer.rel_rep_layer.span_marker"
        if self._shape.spans == "markerv1":
            starts = self._layers.twice(f"{name}.project_start", text)[places[:, 0]]
            ends = self._layers.twice(f"{name}.project_end", text)[places[:, 1]]
            return self._layers.twice(f"{name}.out_project", torch.cat([starts, ends], 1).relu())
        means = [text[first : last + 1].mean(0) for first, last in places.tolist()]
        return self._layers.twice(f"{name}.projection", torch.stack(means))

    def _labels(self, before: Tensor) -> Tensor:
        """(relations, hidden). `before` are the words of the relations, a marker and a label in turn."""
        marks, labels = before[:-1:2], before[1:-1:2]
        match self._shape.labels:
            case "ent_token":
                rows = marks
            case "label":
                rows = labels
            case _:
                rows = (marks + labels) / 2
        made = self._layers.twice("prompt_rep_layer", rows)
        if "refine_prompt.output.weight" in self._layers:
            # the library hides every pair from it, where nothing is trained
            return self._refined("refine_prompt", made, None)
        return made

    def _refined(self, name: str, rows: Tensor, text: Tensor | None) -> Tensor:
        """Rows that look at the words of a text, or at nothing, block after block."""
        block = 0
        while f"{name}.blocks.{block}.norm_read.weight" in self._layers:
            at = f"{name}.blocks.{block}"
            rows = rows + self._attended(f"{at}.read.mha", self._layers.norm(f"{at}.norm_read", rows), text)
            inner = gelu(self._layers.linear(f"{at}.ffn.0", rows))
            rows = rows + self._layers.norm(f"{at}.norm_ffn", self._layers.linear(f"{at}.ffn.3", inner))
            block += 1
        return self._layers.linear(f"{name}.output", rows)

    def _attended(self, name: str, rows: Tensor, text: Tensor | None) -> Tensor:
        held = self._layers
        if text is None:  # all that is left to look at is a row of zeros
            return held[f"{name}.out_proj.bias"].expand_as(rows)
        attended: Tensor = multi_head_attention_forward(
            rows[:, None],
            text[:, None],
            text[:, None],
            rows.shape[1],
            rows.shape[1] // HEAD,
            held[f"{name}.in_proj_weight"],
            held[f"{name}.in_proj_bias"],
            None,
            None,
            True,
            0.0,
            held[f"{name}.out_proj.weight"],
            held[f"{name}.out_proj.bias"],
            training=False,
            need_weights=False,
        )[0]
        return attended[:, 0]

    def _scored(self, pairs: Tensor, labels: Tensor) -> Tensor:
        """Logits (pairs, relations)."""
        held = self._layers
        match self._shape.scorer:
            case "dot":
                return pairs @ labels.T
            case "dot_thresh":
                scale, border = held.twice("scorer.proj_thresh", labels).T
                likeness = pairs @ held.twice("scorer.proj_type", labels).T
                return cast(Tensor, (likeness + border) * softplus(scale))
            case "dot_norm":
                bias = held["scorer.bias"] + held.twice("scorer.dy_bias_type", labels).T
                return pairs @ labels.T + bias + held.twice("scorer.dy_bias_rel", pairs)
        each, other = pairs[:, None].expand(-1, len(labels), -1), labels[None].expand(len(pairs), -1, -1)
        return held.twice("scorer.proj", torch.cat([each * other, each - other, each, other], -1))[..., 0]
