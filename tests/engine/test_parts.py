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
from engine.parts import only_one, real_parts
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
    complaint = "flag: pins: The catalogue has no model 'org/nmae'. Did you mean 'org/name'?"

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
        SettingsError, match=r"flag: memory: [\d.]+ \w+ is more than the [\d.]+ \w+ that cpu has"
    ):
        check_memory(much)
    check_memory(settings(tmp_path, devices="cpu", memory=total_memory()))
    check_memory(settings(tmp_path, memory=total + GiB))  # a simulated device has what it is given
