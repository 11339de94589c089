"""GLiNER2.5's own layers (architecture boundary), run on many windows at once.

A span is told by where it begins and ends, so it may be of any length. The library's head chooses the likely
ones among all; it is given windows of one length, and their questions padded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from gliner2 import layers
from gliner2.models.base import QueryLayout
from gliner2.models.boundary import model as boundary
from gliner2.models.boundary import relations
from gliner2.models.outputs import CandidateTensorBatch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.adapters.forward.packed import Encoder, Hidden
from engine.adapters.labelling.choosing import Candidate
from engine.adapters.schemas.directory import Directory
from engine.adapters.schemas.jobs import SchemaJob, Window
from engine.adapters.schemas.network import ROWS, Edge, Seen, logits_of_classes, words_of
from engine.adapters.schemas.questions import Kind, Question

QUERIES = 256
"""Fields that are asked of the windows of a pass together."""


class Heads(nn.Module):
    """What stands behind the encoder, by the names of the library's own model; what it makes of structures is
    left out."""

    def __init__(self, directory: Directory) -> None:
        super().__init__()
        dim, settings, library = directory.hidden, directory.settings, cast(Any, layers)
        wide = {"input_dim": dim, "intermediate_dims": [2 * dim], "dropout": 0.0, "activation": "relu"}
        self.classifier = library.create_mlp(**wide, output_dim=1)
        self.boundary_head = boundary.BoundaryHead(
            dim, settings, query_dim=dim, build_candidate_states=settings.enable_records
        )
        if settings.enable_relations:
            self.relation_scorer = relations.SparseRelationScorer(
                dim,
                dropout=0.0,
                relation_query_dim=2 * dim if settings.directional_relation_states else dim,
                use_biaffine_content=settings.relation_biaffine_content,
            )


def heads(directory: Directory) -> Heads:
    """With weights of their own, small as they are: some of their numbers are in no file."""
    return Heads(directory)


class Network:
    """Threads may share it."""

    def __init__(self, directory: Directory, encoder: PreTrainedModel, heads: Heads) -> None:
        self.module = nn.ModuleList([encoder, heads])
        self._heads = heads
        self._settings = directory.settings
        self._encoder = Encoder(encoder)
        self._reduce = directory.reduce
        kind = next(encoder.parameters()).device.type
        self._rows = ROWS.get(kind, ROWS["cpu"])
        self._pairs = relations.TypedRelationPairGenerator(
            relations.RelationProposalSettings(
                heads_per_relation=self._settings.relation_heads_per_type,
                tails_per_relation=self._settings.relation_tails_per_type,
                pair_cap=self._settings.relation_pair_cap,
                argument_threshold=self._settings.relation_argument_proposal_threshold,
            )
        )

    def see(self, jobs: Sequence[SchemaJob]) -> list[list[Seen]]:
        """For each job what its windows hold, in order."""
        windows = [(job, window) for job in jobs for window in job.windows]
        with torch.inference_mode():
            hidden = self._encoder.hidden([window.ids for _, window in windows])
            classes = self._classes(hidden, windows)
            found = [
                Seen({}, classes.get(place, {}), _finite(classes.get(place, {})))
                for place in range(len(windows))
            ]
            for places in self._alike(windows):
                for place, seen in zip(places, self._spans(hidden, windows, places), strict=True):
                    found[place] = Seen(
                        {}, found[place].classes, found[place].finite and seen.finite, seen.found, seen.edges
                    )
        left = iter(found)
        return [[next(left) for _ in job.windows] for job in jobs]

    def _classes(
        self, hidden: Hidden, windows: Sequence[tuple[SchemaJob, Window]]
    ) -> dict[int, dict[int, NDArray[np.float32]]]:
        warmth = np.float32(self._settings.classification_temperature)
        said = logits_of_classes(self._heads.classifier, hidden, windows)
        return {place: {n: row / warmth for n, row in rows.items()} for place, rows in said.items()}

    def _alike(self, windows: Sequence[tuple[SchemaJob, Window]]) -> Iterator[list[int]]:
        """Places of windows that go through the head together: of one length, with something to find."""
        groups: dict[int, list[int]] = defaultdict(list)
        for place, (job, window) in enumerate(windows):
            if _asking(job):
                groups[window.count].append(place)
        for count, places in groups.items():
            most = max(1, self._rows // count)
            part: list[int] = []
            for place in places:
                asked = max(len(_fields(windows[each][0])) for each in [*part, place])
                if part and (len(part) == most or asked * (len(part) + 1) > QUERIES):
                    yield part
                    part = []
                part.append(place)
            yield part

    def _spans(
        self, hidden: Hidden, windows: Sequence[tuple[SchemaJob, Window]], places: Sequence[int]
    ) -> list[Seen]:
        jobs = [windows[place][0] for place in places]
        texts = words_of(hidden, [windows[place][1] for place in places], places, self._reduce)
        asked = [
            torch.stack([hidden.of(place)[mark] for mark, *_ in _fields(windows[place][0])])
            for place in places
        ]
        queries = nn.utils.rnn.pad_sequence(asked, batch_first=True)
        there = (
            torch.arange(queries.shape[1], device=queries.device)
            < torch.tensor([len(rows) for rows in asked], device=queries.device)[:, None]
        )
        real = torch.ones(texts.shape[:2], dtype=torch.bool, device=texts.device)
        said = self._heads.boundary_head(texts, real, queries, there, return_candidates=True)
        grouped = self._grouped(jobs, said)
        finite = said.candidates.pair_logits.isfinite().flatten(1).all(1).tolist()
        return [
            Seen(
                {},
                {},
                finite[row],
                _by_question(job, grouped[row]),
                self._edges(job, row, texts, queries, said.candidates),
            )
            for row, job in enumerate(jobs)
        ]

    def _grouped(self, jobs: Sequence[SchemaJob], said: Any) -> list[list[list[tuple[float, int, int]]]]:
        """Of each window and field the likely spans; none where the model says that there are none."""
        logits = said.candidates.pair_logits
        least = logits.new_ones(logits.shape[:2], dtype=torch.float32)
        for row, job in enumerate(jobs):
            for column, (_, question, field) in enumerate(_fields(job)):
                least[row, column] = question.fields[field].threshold
        grouped = boundary._group_scored_candidates(
            said.candidates,
            threshold=least,
            probabilities=torch.sigmoid(logits / self._settings.pair_temperature),
            count_log_rates=said.count_log_rates,
            adaptive_threshold=self._settings.adaptive_threshold,
        )
        if said.null_logits is not None:
            absent = (said.null_logits.sigmoid() > self._settings.abstention_threshold).tolist()
            grouped = [
                [[] if nothing else spans for spans, nothing in zip(fields, row, strict=True)]
                for fields, row in zip(grouped, absent, strict=True)
            ]
        return grouped

    def _edges(
        self, job: SchemaJob, row: int, texts: Tensor, queries: Tensor, candidates: CandidateTensorBatch
    ) -> dict[int, list[Edge]]:
        """By question the pairs that are related, with the words of both."""
        asked = [
            (at, question)
            for at, (_, question, field) in enumerate(_fields(job))
            if _is_head(question, field)
        ]
        if not asked:
            return {}
        one = boundary.BoundaryExtractorModel._single_sample_candidates(candidates, row)
        wanted = [relations.RelationTypeSpec(str(n), (at,), (at + 1,)) for n, (at, _) in enumerate(asked)]
        pairs = self._pairs.generate(one, [QueryLayout(queries=())], wanted)
        if not len(pairs):
            return {}
        ends = [queries[row, at : at + 2] for at, _ in asked]
        directed = self._settings.directional_relation_states
        states = torch.stack([both.flatten() if directed else both.mean(0) for both in ends])[None]
        logits = self._heads.relation_scorer(texts[row : row + 1], states, one, pairs)
        chances = (logits / self._settings.relation_temperature).sigmoid().tolist()
        places = zip(*(getattr(pairs, name).tolist() for name in PLACES), strict=True)
        found: dict[int, list[Edge]] = defaultdict(list)
        numbers = {id(question): number for number, question in enumerate(job.asked.questions)}
        for kind, chance, (start, end, first, last) in zip(
            pairs.relation_types, chances, places, strict=True
        ):
            question = asked[int(kind)][1]
            if chance >= question.fields[0].threshold:
                lead = job.asked.lead
                edge = Edge(chance, (start - lead, end - 1 - lead), (first - lead, last - 1 - lead))
                found[numbers[id(question)]].append(edge)
        return found


PLACES = ("head_start", "head_end", "tail_start", "tail_end")


def _asking(job: SchemaJob) -> bool:
    return any(question.kind is not Kind.CLASSES for question in job.asked.questions)


def _fields(job: SchemaJob) -> list[tuple[int, Question, int]]:
    """Of each field that is looked for in the text its mark, its question and its place there."""
    return [
        (mark, question, field)
        for question, marks in zip(job.asked.questions, job.asked.marks, strict=True)
        if question.kind is not Kind.CLASSES
        for field, mark in enumerate(marks[1:])
    ]


def _is_head(question: Question, field: int) -> bool:
    return question.kind is Kind.RELATION and field == 0


def _by_question(
    job: SchemaJob, grouped: Sequence[Sequence[tuple[float, int, int]]]
) -> dict[int, list[Candidate]]:
    """Words from 0 in the window's own text."""
    numbers = {id(question): number for number, question in enumerate(job.asked.questions)}
    found: dict[int, list[Candidate]] = defaultdict(list)
    for (_, question, field), spans in zip(_fields(job), grouped, strict=False):
        for score, start, end in spans:
            first, last = start - job.asked.lead, end - 1 - job.asked.lead
            if first >= 0:
                found[numbers[id(question)]].append(Candidate(first, last, field, score))
    return found


def _finite(classes: Mapping[int, NDArray[np.float32]]) -> bool:
    return all(np.isfinite(row).all() for row in classes.values())
