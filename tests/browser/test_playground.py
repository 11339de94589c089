"""Models called from the browser, by the routes that every client uses."""

from __future__ import annotations

import base64
import re

from playwright.sync_api import Page, expect

from tests.acceptance.asking import MINILM, NER, PHOTOS, RERANKER, WRITER, encode
from tests.acceptance.serving import PATIENCE, Server
from tests.browser.conftest import Tabs
from tests.browser.test_console import call
from tests.photos import photo

LONG = PATIENCE * 1000


def chosen(tabs: Tabs, server: Server, model: str) -> Page:
    page = tabs.open(f"{server.url}/console/playground?model={model}")
    expect(page.locator("#play-model")).to_have_value(model)
    return page


def test_vectors_are_shown_with_their_shape_and_how_alike_they_are(server: Server, tabs: Tabs):
    page = chosen(tabs, server, MINILM)
    page.get_by_role("button", name="Run").click()

    expect(page.locator("#play-answer .shape").first).to_contain_text("384 × float32", timeout=LONG)
    expect(page.locator("#play-answer table")).to_contain_text("1.000")
    expect(page.locator("#play-timing")).to_contain_text("on cpu")


def test_models_are_offered_by_how_soon_they_could_answer(server: Server, tabs: Tabs):
    call(server, *encode("first"))
    page = tabs.open(f"{server.url}/console/playground")

    groups = page.locator("#play-model optgroup")
    assert groups.first.get_attribute("label") == "Loaded"
    assert page.locator("#play-model").input_value() in groups.first.inner_text()
    remote = page.locator("optgroup[label='Weights from a hub']")
    expect(remote.locator("option[value='openai/whisper-tiny']")).to_have_count(1)


def test_a_model_that_hears_is_given_a_sound(server: Server, tabs: Tabs):
    page = chosen(tabs, server, "openai/whisper-tiny")

    expect(page.get_by_label("Sound")).to_have_attribute("accept", "audio/*")
    expect(page.get_by_label("Text", exact=True)).to_be_hidden()
    expect(page.locator("#play-code")).to_contain_text('"audio":{"data"')


def test_passages_are_ranked(server: Server, tabs: Tabs):
    page = chosen(tabs, server, RERANKER)
    page.get_by_role("button", name="Run").click()

    expect(page.locator(".ranked li").first).to_contain_text(re.compile("Refunds|To return"), timeout=LONG)


def test_scores_below_zero_have_bars_too_the_lowest_the_shortest(server: Server, tabs: Tabs):
    page = chosen(tabs, server, RERANKER)
    lengths = page.evaluate(
        """() => [[-2, -5, -11], [3, -1], [4, 2], [-7]].map((all) => [...drawing.ranked(
        {scores: all.map((score, n) => ({item_id: `item-${n}`, score}))}, [])[0].querySelectorAll("meter")]
        .map((meter) => meter.value))"""
    )

    assert all(each[0] == 1 and each == sorted(each, reverse=True) and each[-1] > 0.05 for each in lengths)
    assert lengths[2] == [1, 0.5]


def test_a_call_that_is_said_prints_what_is_answered_and_names_no_labels_that_are_none(
    server: Server, tabs: Tabs
):
    page = chosen(tabs, server, NER)
    page.get_by_role("button", name="sie-sdk").click()
    code = page.locator("#play-code")
    expect(code).to_contain_text("print(answer)")
    assert "labels" not in code.inner_text()
    page.fill("#play-labels", "GPE")
    expect(code).to_contain_text('labels=["GPE"]')


def test_entities_are_marked_where_they_stand_and_markup_stays_text(server: Server, tabs: Tabs):
    page = chosen(tabs, server, NER)
    page.fill("#play-text", "😀 <b>Ada Lovelace</b> lived in London.")
    page.keyboard.press("Control+Enter")

    expect(page.locator("mark", has_text="London")).to_contain_text("GPE", timeout=LONG)
    expect(page.locator("#play-answer .written")).to_contain_text("<b>Ada")
    assert page.locator("#play-answer b").count() == 0


def test_a_text_is_shown_as_it_is_written(server: Server, tabs: Tabs):
    page = chosen(tabs, server, WRITER)
    page.fill("#play-tokens", "12")
    page.get_by_role("button", name="Run").click()

    expect(page.locator("#play-answer")).to_contain_text(re.compile("tokens in, 12 out"), timeout=LONG)


def test_an_image_is_sent_and_classified(server: Server, tabs: Tabs, tmp_path):
    (tmp_path / "cat.png").write_bytes(photo("chelsea"))
    page = chosen(tabs, server, PHOTOS)
    page.set_input_files("#play-file", tmp_path / "cat.png")
    page.get_by_role("button", name="Run").click()

    expect(page.locator("#play-answer")).to_contain_text(re.compile("cat|float32"), timeout=LONG)


def test_boxes_are_drawn_on_the_image_where_the_answer_has_them(server: Server, tabs: Tabs, tmp_path):
    """No detector is small enough for the pack, so the answer is written here; the page draws it."""
    page = chosen(tabs, server, MINILM)
    image = base64.b64encode(photo("chelsea")).decode()
    item = {"objects": [{"label": '<b id="nasty">', "score": 0.93, "bbox": [10, 20, 110, 220]}]}
    item |= {"entities": [], "classifications": [], "relations": [], "data": None}
    page.evaluate(
        """([item, image]) => document.getElementById("play-answer").replaceChildren(
        ...drawing.extracted({items: [item]}, [], `data:image/png;base64,${image}`))""",
        [item, image],
    )

    box = page.locator(".picture rect").first
    expect(box).to_have_attribute("width", "100")
    expect(box).to_have_attribute("height", "200")
    expect(page.locator(".picture text")).to_contain_text('<b id="nasty">')
    assert page.locator("#nasty").count() == 0


def test_the_call_that_is_said_for_openai_works_there(server: Server, tabs: Tabs):
    page = chosen(tabs, server, MINILM)
    page.fill("#play-text", "one")
    page.get_by_role("button", name="openai").click()
    code = page.locator("#play-code")
    expect(code).to_contain_text("client.embeddings.create")
    said = code.inner_text().replace("…", "none")

    found: dict[str, object] = {}
    exec(re.sub(r"\n(\w+ = )?client\.embeddings", "\nanswer = client.embeddings", said), found)
    assert len(found["answer"].data[0].embedding) == 384
    found["client"].close()


def test_what_is_refused_is_told(server: Server, tabs: Tabs):
    page = chosen(tabs, server, MINILM)
    page.fill("#play-text", "")
    page.get_by_role("button", name="Run").click()

    expect(page.locator("#play-answer .error")).to_contain_text("INVALID_INPUT")


def test_the_same_call_is_said_for_other_clients_and_works_there(server: Server, tabs: Tabs):
    page = chosen(tabs, server, MINILM)
    page.fill("#play-text", 'it\'s one\nand "two"')
    code = page.locator("#play-code")
    expect(code).to_contain_text("curl ")
    page.get_by_role("button", name="sie-sdk").click()
    expect(code).to_contain_text("SIEClient")
    said = code.inner_text()
    page.get_by_role("button", name="openai").click()
    expect(code).to_contain_text("client.embeddings.create")

    found: dict[str, object] = {}
    exec(said.replace("\nclient.encode", "\nanswer = client.encode"), found)
    assert len(found["answer"]) == 2
    found["client"].close()
