from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.documents.blocks import Block, Line, markdown, order
from engine.adapters.documents.layout import Cell, Region, arrange, assign, distinct, grid
from engine.adapters.documents.reading import body_size, flow, join, pdf_line, top_down


def line(text: str, left: float, top: float, height: float = 20, size: float = 0.0) -> Line:
    return Line(text, (left, top, left + 10 * len(text), top + height), 1.0, size)


def kinds(lines: Sequence[Line], body: float = 0.0) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    return [(block.kind, block.rows) for block in flow(lines, body)]


def nothing(box: object) -> list[Cell]:
    return []


def test_lines_at_one_distance_are_a_paragraph_and_a_gap_ends_it() -> None:
    lines = [line("one two", 0, 0), line("three", 0, 28), line("four", 0, 80), line("five", 0, 108)]

    assert kinds(lines) == [("paragraph", (("one two three",),)), ("paragraph", (("four five",),))]


def test_larger_type_is_a_heading() -> None:
    lines = [line("Title", 0, 0, 40, 40), line("Part", 0, 60, 24, 24)] + [
        line("words of the text", 0, 100 + 28 * n, 20, 20) for n in range(4)
    ]

    found = flow(lines, body_size(lines))

    assert [(block.kind, block.level) for block in found] == [
        ("heading", 1),
        ("heading", 2),
        ("paragraph", 0),
    ]


def test_cells_below_each_other_are_a_table() -> None:
    rows = [("Item", "Limit"), ("Building", "$9"), ("Contents", "$4")]
    lines = [line(cell, 200 * x, 30 * y) for y, row in enumerate(rows) for x, cell in enumerate(row)]

    assert kinds(lines) == [("table", tuple(rows))]


@pytest.mark.parametrize("apart", [True, False])
def test_labels_keep_their_values(apart: bool) -> None:
    pairs = [("Name:", "Ann Lee"), ("Policy:", "FL-1")]
    lines = (
        [line(cell, 200 * x, 48 * y) for y, row in enumerate(pairs) for x, cell in enumerate(row)]
        if apart
        else [line(" ".join(row), 0, 48 * y) for y, row in enumerate(pairs)]
    )

    assert kinds(lines) == [("pairs", tuple(pairs))]
    assert markdown(flow(lines)) == "- Name: Ann Lee\n- Policy: FL-1"


def test_a_label_whose_value_stands_apart_keeps_it_though_it_is_alone() -> None:
    assert kinds([line("Total:", 0, 0), line("$12", 300, 0)]) == [("pairs", (("Total:", "$12"),))]


def test_items_are_a_list_and_may_go_on_below() -> None:
    lines = [line("- first", 0, 0), line("goes on", 20, 28), line("2) second", 0, 56)]

    assert kinds(lines) == [("list", (("- first goes on",), ("2) second",)))]


def test_prose_side_by_side_is_not_a_table() -> None:
    texts = [
        f"words of the {side} column, number {n}, that are long"
        for n in range(2)
        for side in ("left", "right")
    ]
    lines = [line(text, 600 * (n % 2), 28 * (n // 2)) for n, text in enumerate(texts)]

    assert [kind for kind, _ in kinds(lines)] == ["paragraph", "paragraph"]


def test_a_divided_word_is_whole_again_and_other_hyphens_stay() -> None:
    assert join(["the prop-", "erty of a well-", "known Anglo-", "Saxon, no. 3-", "4"]) == (
        "the property of a wellknown Anglo- Saxon, no. 3- 4"
    )


def test_the_size_of_type_does_not_depend_on_its_letters() -> None:
    high, low = pdf_line("Play\x02", (0, 0, 40, 9.4)), pdf_line("area", (0, 0, 40, 5.3))

    assert high.text == "Play-"
    assert high.size == pytest.approx(low.size, rel=0.01)


def box(kind: str, left: float, top: float, right: float, bottom: float) -> Block:
    return Block("paragraph", (left, top, right, bottom), ((kind,),))


def test_columns_are_read_one_after_the_other_between_what_spans_them() -> None:
    title, foot = box("title", 0, 0, 1000, 40), box("foot", 0, 900, 1000, 940)
    left = [box(f"left {n}", 0, 100 + 200 * n, 480, 280 + 200 * n) for n in range(3)]
    right = [box(f"right {n}", 520, 100 + 200 * n, 1000, 280 + 200 * n) for n in range(3)]

    found = order([foot, *right, *left, title])

    assert found == [title, *left, *right, foot]


def test_blocks_on_a_skewed_page_are_read_from_left_to_right() -> None:
    above = box("table", 0, 0, 900, 104)
    signed, dated = box("signed", 0, 110, 300, 140), box("dated", 600, 100, 800, 130)

    assert order([dated, above, signed]) == [above, signed, dated]


def test_a_region_seen_twice_is_the_better_one_and_rather_a_title() -> None:
    text, title = Region("text", (0, 0, 300, 30), 0.80), Region("title", (2, 2, 300, 30), 0.75)
    header, table = Region("header", (0, 0, 310, 30), 0.9), Region("table", (0, 100, 300, 400), 0.7)
    part = Region("text", (10, 110, 100, 200), 0.5)

    assert distinct([text, header, title, part, table]) == [title, table]


def test_a_line_belongs_to_the_region_that_holds_most_of_it() -> None:
    regions = [Region("text", (0, 0, 200, 60), 0.9), Region("text", (0, 60, 200, 120), 0.9)]
    first, second, outside = line("first", 0, 30), line("second", 0, 55), line("outside", 190, 100)

    assert assign([outside, second, first], regions) == ([[first], [second]], [outside])


def test_a_value_goes_where_its_label_is() -> None:
    labels, values = Region("text", (0, 0, 100, 100), 0.9), Region("text", (200, 0, 400, 100), 0.9)
    lines = [line("Name:", 0, 0), line("Ann", 200, 0), line("Policy:", 0, 48), line("FL-1", 200, 48)]

    (block,) = arrange(lines, [labels, values], nothing)

    assert (block.kind, block.rows) == ("pairs", (("Name:", "Ann"), ("Policy:", "FL-1")))


def test_a_grid_has_each_line_in_its_cell() -> None:
    cells = [Cell(r, c, (100 * c, 50 * r, 100 * c + 100, 50 * r + 50)) for r in range(2) for c in range(2)]
    lines = [line("a", 10, 10), line("b", 110, 10), line("d", 110, 70), line("d2", 110, 75)]

    assert grid(lines, cells) == (("a", "b"), ("", "d d2"))


def test_cells_that_do_not_hold_all_lines_are_no_grid() -> None:
    cells = [Cell(r, c, (100 * c, 50 * r, 100 * c + 100, 50 * r + 50)) for r in range(2) for c in range(2)]

    assert grid([line("a", 10, 10), line("outside", 400, 10)], cells) == ()
    assert grid([line("a", 10, 10)], cells[:1]) == ()
    assert grid([line("a", 10, 10)], []) == ()


def test_a_table_that_its_model_cannot_divide_is_read_by_geometry() -> None:
    rows = [("Item", "Limit"), ("Building", "$9")]
    lines = [line(cell, 200 * x, 30 * y) for y, row in enumerate(rows) for x, cell in enumerate(row)]
    region = Region("table", (0, 0, 300, 60), 0.9)

    (block,) = arrange(lines, [region], nothing)

    assert (block.kind, block.rows, block.label) == ("table", tuple(rows), "table")


def test_titles_have_levels_by_their_type() -> None:
    large = Line("Large title", (0, 0, 330, 40))
    small = Line("A smaller one", (0, 100, 195, 120))
    regions = [Region("title", large.box, 0.9), Region("title", small.box, 0.9)]

    assert markdown(arrange([large, small], regions, nothing)) == "# Large title\n\n## A smaller one"


def test_cells_and_paragraphs_do_not_break_the_markdown() -> None:
    table = Block("table", (0, 0, 1, 1), (("a|b", "c"), ("d\ne", "")))

    assert markdown([table]) == "| a\\|b | c |\n| --- | --- |\n| d e |  |"
    assert markdown([Block("paragraph", (0, 0, 1, 1), (("# 3 apples",),))]) == "\\# 3 apples"


words = st.text("abcdefgh", min_size=1, max_size=12)
places = st.tuples(st.integers(0, 900), st.integers(0, 1200), words)
shapes = st.tuples(
    st.sampled_from(["text", "title", "figure", "table", "header", "figure_caption"]),
    st.integers(0, 900),
    st.integers(0, 1200),
    st.integers(20, 900),
    st.integers(20, 600),
    st.floats(0.4, 1),
)


@given(st.lists(places, max_size=25), st.lists(shapes, max_size=8))
def test_no_text_is_lost_or_doubled_whatever_the_models_say(
    written: list[tuple[int, int, str]], seen: list[tuple[str, int, int, int, int, float]]
) -> None:
    lines = [line(f"{text}x{n}", left, top) for n, (left, top, text) in enumerate(written)]
    regions = [Region(label, (x, y, x + w, y + h), score) for label, x, y, w, h, score in seen]

    found = markdown(arrange(lines, regions, nothing))

    told = sorted(
        found.replace("<!-- figure -->", "").replace("|", " ").replace("-", " ").replace("#", " ").split()
    )
    assert told == sorted(line.text for line in lines)


@given(st.lists(places, max_size=25))
def test_top_down_keeps_every_line(written: list[tuple[int, int, str]]) -> None:
    lines = [line(text, left, top) for left, top, text in written]

    assert sorted(top_down(lines), key=id) == sorted(lines, key=id)
