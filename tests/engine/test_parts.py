"""What is refused before anything is started: pins, memory and places that cannot be as the settings say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest

from engine.config import GiB, Settings, SettingsError, load
from engine.devices.available import check_memory
from engine.devices.host import total_memory
from engine.parts import host_memory, only_one, real_parts, scheduling_rules
from engine.running import open_engine
from tests.simulation import catalog, model

pytestmark = [
    pytest.mark.anyio,
    # The databases have threads of their own, which do not live in virtual time.
    pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["real"]),
]
MODELS = catalog(model("org/name"))


def settings(folder: Path, **values: object) -> Settings:
    places = {"state_dir": folder / "state", "store": folder / "store", "devices": "simulated:one"}
    return load({**places, **values}, environ={})


async def test_a_pin_that_names_nothing_ends_the_start_with_its_nearest(tmp_path):
    complaint = "command line: pins: The catalogue has no model 'org/nmae'. Did you mean 'org/name'?"

    with pytest.raises(SettingsError, match=re.escape(complaint)):
        await real_parts(settings(tmp_path, pins="org/nmae"), MODELS)
    assert not (tmp_path / "state").exists()


async def test_a_second_server_on_the_same_databases_is_refused_until_the_first_has_ended(tmp_path):
    chosen = settings(tmp_path)
    first = await real_parts(chosen, MODELS)
    async with open_engine(chosen, MODELS, first):
        with pytest.raises(SettingsError) as refused:
            await real_parts(chosen, MODELS)

    assert f"another server, process {os.getpid()}, uses {tmp_path}/state" in str(refused.value)
    only_one(chosen).release()


async def test_more_memory_than_the_machine_has_is_refused_with_both_numbers(tmp_path):
    total = psutil.virtual_memory().total
    much = settings(tmp_path, devices="cpu", memory=total + GiB)

    with pytest.raises(
        SettingsError, match=r"command line: memory: [\d.]+ \w+ is more than the [\d.]+ \w+ that cpu has"
    ):
        check_memory(much)
    check_memory(settings(tmp_path, devices="cpu", memory=total_memory()))
    check_memory(settings(tmp_path, memory=total + GiB))  # a simulated device has what it is given


@pytest.mark.parametrize("name", ["state.db", "traffic.db"])
@pytest.mark.parametrize(
    "broken", [b"this is no database, whatever its name says" * 200, None], ids=["no database", "damaged"]
)
async def test_a_database_that_cannot_be_used_is_named_and_says_what_to_do(tmp_path, name, broken):
    chosen = settings(tmp_path)
    parts = await real_parts(chosen, MODELS)
    for database in (parts.state, parts.traffic):
        database.close()
    parts.lock.release()
    file = tmp_path / "state" / name
    whole = file.read_bytes()
    file.write_bytes(broken or whole[:100] + b"\xff" * (len(whole) - 100))

    with pytest.raises(SettingsError) as refused:
        await real_parts(chosen, MODELS)

    assert f"{file} cannot be used" in str(refused.value) and "Move it away" in str(refused.value)
    file.unlink()
    again = await real_parts(chosen, MODELS)  # neither the lock nor a connection was kept
    for database in (again.state, again.traffic):
        database.close()
    again.lock.release()


async def test_the_numbers_of_the_settings_reach_those_who_work_by_them(tmp_path):
    given = {"max_model_cost": 1000, "max_key_jobs": 7, "window_share": 0.05, "host_memory": "64MiB"}
    chosen = settings(tmp_path, **given)
    rules = scheduling_rules(chosen)

    assert (rules.max_model_cost, rules.max_key_jobs, rules.window_share) == (1000, 7, 0.05)
    assert host_memory(chosen) == 64 * 2**20
    assert 0 < host_memory(settings(tmp_path)) <= total_memory() // 4


async def test_a_server_that_has_run_does_not_start_without_what_it_kept(tmp_path):
    """An empty file is a good database, and one without keys: the server would be open to everybody."""
    chosen = settings(tmp_path)
    state = tmp_path / "state" / "state.db"
    state.parent.mkdir()
    state.touch()
    (state.parent / "traffic.db").touch()

    with pytest.raises(SettingsError, match=r"state\.db is empty.*keys.*are gone"):
        await real_parts(chosen, MODELS)

    state.unlink()
    parts = await real_parts(chosen, MODELS)
    for database in (parts.state, parts.traffic):
        database.close()
    parts.lock.release()
