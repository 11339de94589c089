import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file

from engine.catalog import Source
from engine.errors import WeightsUnavailable
from engine.sources.locate import Sources
from tests.engine.sources import carriers

COMMIT = "a" * 40
CONTENT = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"a pickle",
    "1_Pooling/config.json": b"{}",
    "README.md": b"read me",
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub cache of this test, as HF_HUB_CACHE would name it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot(cache, files, repo="org/model"):
    """A snapshot as the hub's library leaves it."""
    root = cache / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(COMMIT)
    for name, data in files.items():
        path = root / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root / "snapshots" / COMMIT


def reason(sources, source):
    with pytest.raises(WeightsUnavailable) as refused:
        sources.locate(carriers.spec(source))
    (tried,) = refused.value.details["tried"]
    return tried["reason"]


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_cached_snapshot_is_used_as_it_is(cache, tmp_path, revision):
    folder = snapshot(cache, {"config.json": b"{}", "model.safetensors": b"weights"})
    spec = carriers.spec(Source(hub="org/model", revision=revision))
    sources = carriers.sources(tmp_path)

    assert sources.locate(spec) == folder
    assert sources.available(spec) == sources.here(spec) == "hub org/model"


def test_a_snapshot_of_pickles_is_refused(cache, tmp_path):
    snapshot(cache, {"config.json": b"{}", "pytorch_model.bin": b"a pickle"})

    assert "there are no safetensors" in reason(carriers.sources(tmp_path), Source(hub="org/model"))


def test_a_snapshot_that_lacks_a_shard_is_refused(cache, tmp_path):
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = {"model-1.safetensors": b"weights", "model.safetensors.index.json": json.dumps(index).encode()}
    snapshot(cache, files)

    why = reason(carriers.sources(tmp_path), Source(hub="org/model"))

    assert why.startswith("model-2.safetensors is missing from")


def test_a_cached_snapshot_can_be_converted(cache, tmp_path):
    snapshot(cache, {"onnx/model.onnx": b"graph", "model.safetensors": b"weights"})

    made = carriers.sources(tmp_path).locate(
        carriers.spec(Source(hub="org/model", convert="files", path="onnx/*.onnx"))
    )

    assert (made / "model.onnx").read_bytes() == b"graph"


class FakeHub(BaseHTTPRequestHandler):
    """Enough of the hub for a snapshot; `asked` holds each path with the token it came with."""

    asked: list[tuple[str, str | None]]

    def do_GET(self):
        self.asked.append((self.path, self.headers.get("authorization")))
        if self.path.startswith("/api/models/org/model"):
            listed = [
                {"rfilename": name, "path": name, "type": "file", "oid": "b" * 40, "size": 1}
                for name in CONTENT
            ]
            answer = (
                listed if "/tree/" in self.path else {"id": "org/model", "sha": COMMIT, "siblings": listed}
            )
            return self._send(json.dumps(answer).encode(), "application/json")
        name = self.path.partition(f"/resolve/{COMMIT}/")[2]
        if name in CONTENT:
            return self._send(CONTENT[name], "application/octet-stream")
        return self.send_error(404)

    do_HEAD = do_GET

    def _send(self, data, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hash(data)}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def fake_hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    handler = type("Handler", (FakeHub,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
        server.shutdown()
        thread.join()


def test_a_model_is_fetched_from_the_endpoint_with_the_token_and_without_pickles(cache, tmp_path, fake_hub):
    endpoint, asked = fake_hub
    sources = Sources(tmp_path, True, hub_endpoint=endpoint, hub_token="hf_secret")

    found = sources.locate(carriers.spec(Source(hub="org/model")))

    names = sorted(file.relative_to(found).as_posix() for file in found.rglob("*") if file.is_file())
    assert names == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    assert {token for _, token in asked} == {"Bearer hf_secret"}
    assert not any("pytorch_model" in path for path, _ in asked)


def test_a_checkpoint_is_fetched_where_its_conversion_is_named_and_nothing_else_is(cache, tmp_path, fake_hub):
    endpoint, asked = fake_hub
    sources = Sources(tmp_path, True, hub_endpoint=endpoint, hub_token=None)

    why = reason(sources, Source(hub="org/model", convert="torch_checkpoint"))

    assert why.startswith("the conversion torch_checkpoint failed")  # its one byte is no checkpoint
    assert any("pytorch_model.bin" in path for path, _ in asked)
    assert not any("safetensors" in path for path, _ in asked)


def test_a_cached_checkpoint_is_converted_where_that_is_named(cache, tmp_path):
    folder = snapshot(cache, {"config.json": b"{}"})
    torch.save({"a": torch.ones(2)}, folder / "pytorch_model.bin")
    sources = carriers.sources(tmp_path)

    made = sources.locate(carriers.spec(Source(hub="org/model", convert="torch_checkpoint")))

    assert load_file(made / "model.safetensors")["a"].tolist() == [1, 1]
    assert "there are no safetensors" in reason(sources, Source(hub="org/model"))


def test_a_checkpoint_that_lacks_a_shard_is_refused(cache, tmp_path):
    index = {"weight_map": {"a": "pytorch_model-1-of-2.bin", "b": "pytorch_model-2-of-2.bin"}}
    files = {"pytorch_model-1-of-2.bin": b"1", "pytorch_model.bin.index.json": json.dumps(index).encode()}
    snapshot(cache, files)

    why = reason(carriers.sources(tmp_path), Source(hub="org/model", convert="torch_checkpoint"))

    assert why.startswith("pytorch_model-2-of-2.bin is missing from")


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("", "gliner_config.json"),
        ("encoder/", "gliner_config.json"),
        ("", "glirel_config.json"),
        ("labels_encoder/", "config.json"),
    ],
)
def test_a_model_that_leans_on_another_for_its_tokenizer_is_whole_with_that_one(cache, tmp_path, own, file):
    key = "label_model_name" if file == "config.json" else "model_name"
    said = json.dumps({key: "org/encoder", "labels_encoder": None}).encode()
    folder = snapshot(cache, {file: said, "model.safetensors": b"weights"})
    sources, source = carriers.sources(tmp_path), Source(hub="org/model")

    assert reason(sources, source).startswith("it has its tokenizer from org/encoder: not in the hub's cache")
    if own:
        (folder / own).mkdir()
        (folder / own / "tokenizer.json").write_text("{}")
        (folder / own / "config.json").write_text("{}")
    else:
        snapshot(cache, {"config.json": b"{}", "tokenizer.json": b"{}"}, repo="org/encoder")
    assert sources.locate(carriers.spec(source)) == folder


def test_what_is_cached_is_not_asked_for_again(cache, tmp_path, fake_hub):
    endpoint, asked = fake_hub
    snapshot(cache, {"model.safetensors": b"weights"})

    Sources(tmp_path, True, hub_endpoint=endpoint, hub_token=None).locate(
        carriers.spec(Source(hub="org/model"))
    )

    assert asked == []


def test_offline_nothing_is_asked(cache, tmp_path, fake_hub):
    endpoint, asked = fake_hub

    why = reason(Sources(tmp_path, False, hub_endpoint=endpoint, hub_token=None), Source(hub="org/model"))

    assert why.endswith("and this server is offline: `--online` lets it ask")
    assert asked == []


def test_a_repository_that_the_hub_lacks_is_a_reason(cache, tmp_path, fake_hub):
    endpoint, _ = fake_hub

    why = reason(Sources(tmp_path, True, hub_endpoint=endpoint, hub_token=None), Source(hub="org/other"))

    assert "404" in why


def test_a_hub_that_does_not_answer_is_a_reason(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    sources = Sources(tmp_path, True, hub_endpoint="http://127.0.0.1:9", hub_token=None)

    assert reason(sources, Source(hub="org/model")) == "asking the hub failed: [Errno 111] Connection refused"


@pytest.fixture
def modelscope(tmp_path, monkeypatch):
    """Stands in for the library, which is not installed here; has the calls that it got, with its names."""
    calls = []

    class HubError(Exception):
        """The library's own."""

    def snapshot_download(model_id, revision=None, local_files_only=False, allow_patterns=None):
        calls.append((model_id, revision, local_files_only, allow_patterns))
        if local_files_only:
            raise HubError("not cached")
        (tmp_path / "scope").mkdir()
        (tmp_path / "scope/model.safetensors").write_bytes(b"weights")
        return str(tmp_path / "scope")

    monkeypatch.setitem(sys.modules, "modelscope", SimpleNamespace(snapshot_download=snapshot_download))
    monkeypatch.setitem(sys.modules, "modelscope.hub.errors", SimpleNamespace(HubError=HubError))
    return calls


def test_modelscope_is_asked_for_the_same_files_and_only_online(tmp_path, modelscope):
    source = Source(modelscope="org/model", revision="v1")

    assert (
        reason(carriers.sources(tmp_path), source)
        == "not cached, and this server is offline: `--online` lets it ask"
    )
    assert carriers.sources(tmp_path, online=True).locate(carriers.spec(source)) == tmp_path / "scope"

    patterns = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata"]
    cached, fetched = ("org/model", "v1", True, patterns), ("org/model", "v1", False, patterns)
    assert modelscope == [cached, cached, fetched]
