"""Settings: one declaration each, three places to set them, and complaints that name key and place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.config import Settings, SettingsError, load
from engine.declarations import declarations
from engine.quantities import about, as_duration, as_size, seconds, size


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No `serai.toml` of whoever runs the tests is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def complaints(flags=None, environ=None, file=None):
    with pytest.raises(SettingsError) as caught:
        load(flags, environ=environ or {}, file=file)
    return caught.value.complaints


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(elsewhere):
    (elsewhere / "serai.toml").write_text('port = 1\nhost = "::1"\nslots = 3\n')

    settings = load({"port": "3"}, environ={"SERAI_PORT": "2", "SERAI_SLOTS": "4"})

    assert (settings.port, settings.slots, settings.host, settings.headroom) == (3, 4, "::1", 0.2)
    kinds = [settings.origin(name).kind for name in ("port", "slots", "host", "headroom")]
    assert kinds == ["flag", "env", "file", "default"]
    assert str(settings.origin("slots")) == "SERAI_SLOTS"
    assert str(settings.origin("host")) == "serai.toml"


def test_without_any_place_every_value_is_the_declared_one():
    assert load(environ={}).model_dump() == Settings().model_dump()
    assert all(load(environ={}).origin(d.name).kind == "default" for d in declarations())


def test_an_unknown_key_is_named_with_its_nearest_and_its_place(elsewhere):
    file = elsewhere / "other.toml"
    file.write_text("max_itms = 3\n")

    assert complaints({"prot": 1}, {"SERAI_MEMROY": "2GiB"}, file) == [
        f"{file}: there is no setting 'max_itms'; did you mean 'max_items'?",
        "SERAI_MEMROY: there is no setting 'memroy'; did you mean 'memory'?",
        "command line: there is no setting 'prot'; did you mean 'port'?",
    ]


def test_a_table_and_a_variable_in_the_file_are_told_how_to_write_them(elsewhere):
    (elsewhere / "serai.toml").write_text("SERAI_PORT = 1\n[server]\nport = 2\n")

    assert complaints() == [
        "serai.toml: there is no setting 'SERAI_PORT'; the key is 'port'",
        "serai.toml: [server] is a table; the file is a flat list of keys, as port = 8080",
    ]


def test_all_that_is_wrong_is_said_at_once_with_key_and_place(elsewhere):
    (elsewhere / "serai.toml").write_text("headroom = 1.5\nport = true\n")

    assert complaints({"devices": "gpu", "nothing": 1}, {"SERAI_MEMORY": "much"}) == [
        "command line: there is no setting 'nothing'",
        "serai.toml: port: expected a number, not true or false",
        "command line: devices: 'gpu' is no device; there are auto, cpu, cuda:N and simulated:NAME",
        "SERAI_MEMORY: memory: 'much' is no size; write bytes, or 512MB, 2GiB",
        "serai.toml: headroom: 1.5 is out of range: it must be less than 1",
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"base_path": "serai/"}, "leading slash"),
        ({"hub_endpoint": "hub.example"}, "https://"),
        ({"port": 65536}, "65535"),
        ({"port": -1}, "at least 0"),
        ({"drain_limit": "soon"}, "200ms"),
        ({"drain_limit": -2}, "negative"),
        ({"drain_limit": float("nan")}, "no number"),
        ({"memory": ["1GiB"]}, "not list"),
        ({"memory": 2}, "2 B is less than 64MiB, which holds no model; did you mean 2GiB?"),
        ({"base_path": "/a{b}"}, "plainly"),
        ({"devices": "cpu,cpu"}, "twice"),
        ({"devices": "cuda:first"}, "no device"),
        ({"devices": "simulated"}, "no device"),
        ({"standard_target": "1ms"}, "must not decrease"),
        ({"eviction": "random"}, "'lru'"),
    ],
)
def test_a_value_out_of_its_range_is_refused(flags, said):
    (complaint,) = complaints(flags)

    assert said in complaint


def test_a_file_that_cannot_be_read_or_parsed_is_named(elsewhere):
    (elsewhere / "bad.toml").write_text("port = \n")

    assert complaints(file=elsewhere / "none.toml") == [f"{elsewhere}/none.toml: No such file or directory"]
    (complaint,) = complaints(environ={"SERAI_CONFIG": str(elsewhere / "bad.toml")})
    assert complaint.startswith(f"{elsewhere}/bad.toml: ")
    assert "line 1" in complaint


def test_the_users_configuration_directory_is_read_when_there_is_no_file_here(elsewhere):
    place = elsewhere / "config" / "serai"
    place.mkdir(parents=True)
    (place / "serai.toml").write_text("slots = 7\n")

    assert load(environ={"XDG_CONFIG_HOME": str(elsewhere / "config")}).slots == 7
    (elsewhere / "serai.toml").write_text("slots = 8\n")
    assert load(environ={"XDG_CONFIG_HOME": str(elsewhere / "config")}).slots == 8


def test_lists_and_empty_values_are_written_alike_in_every_place(elsewhere):
    (elsewhere / "serai.toml").write_text('pins = ["a/b", "c"]\nmemory = ""\n')

    assert load(environ={}).pins == ("a/b", "c")
    assert load(environ={}).memory is None
    (elsewhere / "serai.toml").write_text('pins = "a/b"')
    assert load(environ={}).pins == ("a/b",)
    assert load(environ={"SERAI_PINS": "d, e,"}).pins == ("d", "e")
    assert load(environ={"SERAI_PINS": ""}).pins == ()
    assert load({"catalog": ("~/x", "y")}, environ={}).catalog[0].is_absolute()


def test_devices_lose_their_spaces_and_hub_variables_of_others_are_honoured():
    settings = load(
        {"devices": "cuda:0, cpu"},
        environ={"HF_TOKEN": "t", "HF_ENDPOINT": "https://mirror.example/"},
    )

    assert settings.devices == "cuda:0,cpu"
    assert (settings.hub_token, settings.hub_endpoint) == ("t", "https://mirror.example")
    assert load(environ={"HF_TOKEN": "t", "SERAI_HUB_TOKEN": "u"}).hub_token == "u"


def test_the_directories_follow_the_users_own():
    settings = load(environ={"XDG_CACHE_HOME": "/c", "XDG_DATA_HOME": "/d"})

    assert (str(settings.store), str(settings.state_dir)) == ("/c/serai", "/d/serai")
    assert settings.origin("store").kind == "default"
    assert str(load(environ={"XDG_CACHE_HOME": "/c", "SERAI_STORE": "/s"}).store) == "/s"


def test_a_secret_is_never_shown():
    settings = load(environ={"SERAI_HUB_TOKEN": "hush", "SERAI_SESSION_KEY": "hush"})

    assert "hush" not in repr(settings) + str(settings)
    with pytest.raises(ValidationError) as caught:
        Settings(hub_token=["hush"])  # type: ignore[arg-type]
    assert "hush" not in str(caught.value)


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Settings().port = 1


@given(st.integers(0, 2**50))
def test_a_size_reads_back_as_itself(count):
    assert size(as_size(count)) == count
    assert size(str(count)) == count


@given(st.floats(0, 1e7))
def test_a_duration_reads_back_as_itself(span):
    assert seconds(as_duration(span)) == span


@pytest.mark.parametrize(
    ("written", "count"),
    [("2GiB", 2**31), ("512MB", 512_000_000), ("1.5 KiB", 1536), (7, 7), ("7", 7), ("0.5", 1), (1e3, 1000)],
)
def test_a_size_may_be_written_in_these_ways(written, count):
    assert size(written) == count


@pytest.mark.parametrize(
    ("written", "span"),
    [("200ms", 0.2), ("2s", 2.0), ("5min", 300.0), ("1h", 3600.0), (0.25, 0.25), ("14d", 14 * 86400.0)],
)
def test_a_duration_may_be_written_in_these_ways(written, span):
    assert seconds(written) == pytest.approx(span)


@pytest.mark.parametrize("wrong", ["", "-1", "1 parsec", "GiB", None, True, b"1", float("inf")])
def test_what_is_no_quantity_is_refused(wrong):
    for read in (size, seconds):
        with pytest.raises(ValueError, match=r"no size|no duration|expected|negative"):
            read(wrong)


def test_sizes_to_read_at_a_glance_have_three_digits_or_so():
    shown = [about(n) for n in (0, 999, 1000, 91_000_000, 2**31, 2**43)]

    assert shown == ["0 B", "999 B", "1.0 KiB", "86.8 MiB", "2.0 GiB", "8.0 TiB"]


def test_more_bytes_than_there_can_be_are_refused():
    assert complaints({"memory": "1e999GB"}) == [
        "command line: memory: '1e999GB' is more than any machine has"
    ]
