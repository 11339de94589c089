import pytest

from engine.sources.files import NotHere, WheelFiles, choose

NAMES = (
    "pack/__init__.py",
    "pack/models/a.onnx",
    "pack/models/b.pb",
    "pack/models/b.pbtxt",
    "pack/models/c/d.json",
)


@pytest.mark.parametrize(
    ("path", "chosen"),
    [
        pytest.param(
            "pack/models", ("pack/models", ("a.onnx", "b.pb", "b.pbtxt", "c/d.json")), id="a folder"
        ),
        pytest.param(
            "pack/models/", ("pack/models", ("a.onnx", "b.pb", "b.pbtxt", "c/d.json")), id="with a slash"
        ),
        pytest.param("pack/models/a.onnx", ("pack/models", ("a.onnx",)), id="a file"),
        pytest.param("pack/models/*.pb*", ("pack/models", ("b.pb", "b.pbtxt")), id="a pattern"),
        pytest.param(
            "pack/models/*", ("pack/models", ("a.onnx", "b.pb", "b.pbtxt")), id="a pattern goes no deeper"
        ),
        pytest.param(
            "",
            ("", ("pack/models/a.onnx", "pack/models/b.pb", "pack/models/b.pbtxt", "pack/models/c/d.json")),
            id="all",
        ),
    ],
)
def test_a_path_is_a_folder_a_file_or_a_pattern(path, chosen):
    assert choose(NAMES, path) == chosen


@pytest.mark.parametrize("path", ["pack/other", "pack/models/*.gguf", "pack/__init__.py"])
def test_a_path_that_fits_no_file_says_so(path):
    with pytest.raises(NotHere, match="holds nothing at"):
        choose(NAMES, path)


def test_a_path_cannot_leave_its_source():
    with pytest.raises(NotHere, match="leaves its source"):
        choose(NAMES, "pack/../../etc/passwd")


def test_only_files_that_were_chosen_are_read(tmp_path):
    files = WheelFiles(tmp_path, ("a.bin", "b.bin"))

    with pytest.raises(FileNotFoundError, match=r"c\.bin is not among a\.bin, b\.bin"):
        files.path("c.bin")
    with pytest.raises(FileNotFoundError, match="fits 2 of"):
        files.only("*.bin")
