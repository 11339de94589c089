import gzip
import json
from pathlib import Path

import pytest

from replay.formats.reading import read
from replay.peaks import peak, peaks
from replay.trace import NO_SESSION, BadTrace, merged

DATA = Path(__file__).parents[1] / "data"


def write(tmp_path, name, *lines) -> Path:
    path = tmp_path / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_the_azure_hour_is_read_whole_and_its_peaks_are_sliding_ones():
    code = read(DATA / "azure_llm_2023_code.csv.gz")
    conv = read(DATA / "azure_llm_2023_conv.csv.gz")
    assert (len(code), len(conv)) == (8819, 19366)
    both = merged([code, conv])
    assert both.models == ("azure_llm_2023_code", "azure_llm_2023_conv")
    assert round(both.span) == 3513
    assert round(both.rate, 2) == 8.02
    rounded = {window: round(rate, 1) for window, rate in peaks(both.arrived).items()}
    assert rounded == {1: 77, 10: 46.9, 60: 17.3, 300: 11.5, 900: 10.7}
    assert code.input_size[0] == 4808 and code.output_size[0] == 10
    assert conv.notes == () and code.notes == (
        "nothing came for more than 60 s 12 times; longest for 217 s, 2856 s after the begin",
    )


def test_a_peak_may_lie_across_the_edge_of_a_window():
    arrived = merged([read(DATA / "azure_llm_2023_code.csv.gz")]).arrived
    assert peak(arrived, 1.0) > max(sum(int(t) == second for t in arrived) for second in range(60))


def test_burstgpt_is_known_by_its_columns_in_any_order(tmp_path):
    path = write(
        tmp_path,
        "burst.csv",
        "Model,Timestamp,Log Type,Response tokens,Request tokens",
        "GPT-4,5,Conversation log,20,472",
        "ChatGPT,7.5,API log,0,10",
    )
    trace = read(path)
    assert trace.models == ("GPT-4", "ChatGPT")
    assert trace.arrived.tolist() == [0, 2.5]
    assert trace.input_size.tolist() == [472, 10] and trace.output_size.tolist() == [20, 0]


def test_mooncake_counts_in_milliseconds(tmp_path):
    path = write(
        tmp_path,
        "mooncake.jsonl",
        {"timestamp": 1000, "input_length": 6755, "output_length": 500, "hash_ids": [1, 2]},
        {"timestamp": 4000, "input_length": 7319, "output_length": 490, "hash_ids": [1]},
    )
    assert read(path).arrived.tolist() == [0, 3]


def test_a_bailian_turn_is_of_its_parents_session(tmp_path):
    row = {"timestamp": 0.0, "input_length": 1, "output_length": 1, "turn": 1}
    path = write(
        tmp_path,
        "bailian.jsonl",
        row | {"chat_id": 159, "parent_chat_id": -1},
        row | {"chat_id": 160, "parent_chat_id": -1, "timestamp": 1.0},
        row | {"chat_id": 161, "parent_chat_id": 159, "timestamp": 2.0},
    )
    assert read(path).session.tolist() == [0, 1, 0]


def test_vidur_counts_in_seconds(tmp_path):
    path = write(tmp_path, "v.csv", "arrived_at,num_prefill_tokens,num_decode_tokens", "0.5,3,4", "1,5,6")
    trace = read(path)
    assert trace.arrived.tolist() == [0, 0.5] and trace.output_size.tolist() == [4, 6]
    assert trace.session.tolist() == [NO_SESSION] * 2


def test_any_table_is_read_by_a_map_and_a_unit(tmp_path):
    path = write(tmp_path, "own.csv", "ms;x", "when,bytes,who", "0,7,a")
    path.write_text("when,bytes,who\n0,7,a\n1500,9,b\n")
    mapping = {"time": "when", "input": "bytes", "model": "who"}
    trace = read(path, mapping=mapping, time_unit=0.001)
    assert trace.arrived.tolist() == [0, 1.5] and trace.models == ("a", "b")


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"input": "bytes"}, "needs time=COLUMN"),
        ({"time": "when", "size": "bytes"}, "not size"),
        ({"time": "then"}, "no column then"),
    ],
)
def test_a_map_that_does_not_fit_says_why(tmp_path, mapping, said):
    path = write(tmp_path, "own.csv", "when,bytes", "0,7")
    with pytest.raises(BadTrace, match=said):
        read(path, mapping=mapping)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", "", "holds no requests"),
        ("header.csv", "TIMESTAMP,ContextTokens,GeneratedTokens", "holds no requests"),
        ("strange.csv", "a,b\n1,2", "none of the forms"),
        ("bad.csv", "arrived_at,num_prefill_tokens\n0,1\nx,2\n3,4", r"bad.csv:3: could not convert"),
        ("bad.jsonl", '{"timestamp": 1, "input_length": 2}\nnot json\n{}', r"bad.jsonl:2: "),
        ("list.jsonl", "[1, 2]", "expected an object"),
        ("huge.csv", "arrived_at,num_prefill_tokens\n0,1e12", "no size"),
        ("deep.jsonl", '{"timestamp": ' + "[" * 100_000, "deep.jsonl:1: .*nested too deeply"),
        ("line.csv", "arrived_at,num_prefill_tokens\n" + "1" * 2**21, "line.csv:2: a line has at most 1 MiB"),
        (
            "row.csv",
            "arrived_at,num_prefill_tokens\n0,1\n1," + ('"' + "\n" * 100_000 + '",') * 20,
            "a row has at most 1 MiB",
        ),
        ("wide.csv", ",".join(map(str, range(2000))) + "\n", "at most 1000 columns"),
        (
            "listed.jsonl",
            '{"timestamp": 1, "input_length": 2, "session_id": [1]}',
            "listed.jsonl:1: session_id is neither text nor a number",
        ),
        (
            "long.jsonl",
            '{"timestamp": 1, "input_length": 2, "session_id": "%s"}' % ("x" * 300),
            "session_id has more than 200 characters",
        ),
    ],
)
def test_a_broken_file_names_the_line(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BadTrace, match=said):
        read(path)


def test_a_file_that_is_no_text_or_not_there_is_told(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(BadTrace, match="no text file"):
        read(path)
    with pytest.raises(BadTrace, match="cannot be read"):
        read(tmp_path / "nothing.csv")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes((DATA / "azure_llm_2023_code.csv.gz").read_bytes()[:5000])
    with pytest.raises(BadTrace, match="cut off"):
        read(cut)


def test_a_small_file_of_much_is_refused_before_it_is_held(tmp_path, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    row = b"0,1," + b"x" * 100_000 + b"\n"
    path.write_bytes(gzip.compress(b"arrived_at,num_prefill_tokens\n" + row * 200))
    with pytest.raises(BadTrace, match="unpacks to at most 200 times its size"):
        read(path)
    path.write_bytes(gzip.compress(b"arrived_at,num_prefill_tokens\n" + b"1" * 2**26))
    with pytest.raises(BadTrace, match=r"bomb.csv.gz:2: a line has at most 1 MiB"):
        read(path)
    path.write_bytes(gzip.compress(b"0,1\n" * 1000)[:30] + b"\xff" * 40)
    with pytest.raises(BadTrace, match="cut off, or is no gzip"):
        read(path)
    monkeypatch.setattr("replay.formats.columns.MOST_ROWS", 2)
    rows = write(tmp_path, "rows.csv", "arrived_at,num_prefill_tokens", "0,1", "1,2", "2,3")
    with pytest.raises(BadTrace, match=r"rows.csv:4: a trace has at most 2 rows"):
        read(rows)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,2,3\n2,4"
    path = tmp_path / "cut.csv"
    path.write_text(rows)
    assert len(read(path)) == 2
    lines = tmp_path / "cut.jsonl"
    lines.write_text('{"timestamp": 1, "input_length": 2}\n{"timestamp": 2, "inp')
    assert len(read(lines)) == 1


def test_a_form_may_be_named(tmp_path):
    path = write(tmp_path, "m.jsonl", {"timestamp": 2000, "input_length": 1, "chat_id": 1})
    assert read(path, form="mooncake").models == ("m",)
    with pytest.raises(BadTrace, match="no form 'other'"):
        read(path, form="other")
