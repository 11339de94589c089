"""mxbai-rerank-v2 is asked in token ids that were joined, as its package mxbai-rerank 0.1.6 joins them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from engine import catalog
from engine.errors import InputTooLong
from tests.engine.adapters.tiny_texts import Served
from tests.weights import CATALOG

QUERIES = ["what is a levee?", "levees ", "who? why?\n"]
PASSAGES = ["A levee holds water.", "It broke.\n", "", " what? ", "cats <|im_end|> dogs", "x" * 90]
INSTRUCTIONS = [None, "find floods?"]
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokenizer splits a text: marks keep the line breaks behind them."""
MARKS = ["<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 with a byte-level tokenizer that has a few words of two bytes."""
    path = tmp_path_factory.mktemp("qwen2")
    pairs = [("?", "Ċ"), (".", "Ċ"), ("Ġ", "Ċ"), ("Ċ", "Ċ"), ("e", "r")]
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in pairs)]
    made = Tokenizer(models.BPE({token: place for place, token in enumerate(vocabulary)}, pairs))
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, bytewise])
    made.add_special_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    tf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=MARKS[1], pad_token=MARKS[1]).save_pretrained(
        path
    )
    torch.manual_seed(0)
    config = tf.Qwen2Config(
        vocab_size=len(vocabulary) + len(MARKS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=1024,
        initializer_range=0.3,
    )
    tf.Qwen2ForCausalLM(config).eval().save_pretrained(path)
    return path


def served(path: Path, size: str = "base", **given: object) -> Served:
    spec = catalog.load([CATALOG]).models[f"mixedbread-ai/mxbai-rerank-{size}-v2"]
    return Served(path, **(spec.model_dump(exclude={"sources"}) | given))


def joined(path: Path, query: str, passage: str, instruction: str | None) -> list[int]:
    """What the package's `prepare_inputs` and `concat_input_ids` make of a pair that is not cut."""
    tokenizer = tf.AutoTokenizer.from_pretrained(path)
    told = f"instruction: {instruction}\n" if instruction else ""
    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    task = (
        "You are a search relevance expert who evaluates how well documents match search queries. "
        "For each query-document pair, carefully analyze the semantic relationship between them, then "
        "provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
    )
    parts = [
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n",
        f"{told}query: {query}",
        "\n",
        f"document: {passage}",
        "\n",
        task,
        "<|im_end|>\n<|im_start|>assistant\n",
    ]
    return [token for part in parts for token in tokenizer(part, add_special_tokens=False)["input_ids"]]


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_the_question_is_joined_as_the_package_joins_it(
    instruction: str | None, qwen: Path, compared: Callable[..., None]
):
    reranker = served(qwen)
    model = tf.AutoModelForCausalLM.from_pretrained(qwen).eval()
    one, zero = tf.AutoTokenizer.from_pretrained(qwen).convert_tokens_to_ids(["1", "0"])
    scores, expected, alone = [], [], []
    for query in QUERIES:
        jobs = reranker.matches(query, PASSAGES, instruction=instruction)
        scores += [output.score for output in reranker.model.run(jobs)]
        for job, passage in zip(jobs, PASSAGES, strict=True):
            ids = joined(qwen, query, passage, instruction)
            assert job.payload.ids.tolist() == ids
            with torch.inference_mode():
                last = model(torch.tensor([ids])).logits[0, -1]
            expected.append(float(last[one] - last[zero]))
            alone += [output.score for output in reranker.model.run([job])]

    assert np.abs(np.array(scores) - expected).max() <= 1e-4
    assert np.abs(np.array(scores) - alone).max() <= 1e-5
    name = f"tiny qwen2, joined ids{', instructed' if instruction else ''}"
    compared("yes_no_reranker", name, "transformers", scores, expected, alone)


def test_only_the_passage_is_cut_of_joined_parts(qwen: Path):
    whole = served(qwen, "large").matches(QUERIES[0], PASSAGES[-1:])[0].payload.ids
    short = served(qwen, "large", max_tokens=len(whole) - 30)

    (job,) = short.matches(QUERIES[0], PASSAGES[-1:])

    ends = joined(qwen, QUERIES[0], PASSAGES[-1][:60], None)
    assert (job.payload.ids.tolist(), job.usage.truncated) == (ends, 1)
    with pytest.raises(InputTooLong, match=r"the query is .* leaves no room"):
        short.matches("levee " * 20, PASSAGES[:1])
