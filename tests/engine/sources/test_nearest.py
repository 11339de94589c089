import pytest

from engine.catalog import Source
from engine.requests import OutputType, Task
from engine.sources.nearest import nearest
from tests.engine.sources import carriers


def entry(id, family="text_encoder", tasks=(Task.ENCODE,), **fields):
    return carriers.spec(Source(directory="/nowhere"), id=id, family=family, tasks=tasks, **fields)


DENSE = entry("org/dense", outputs=(OutputType.DENSE,))
SPARSE = entry("org/sparse", outputs=(OutputType.SPARSE,))
BOTH = entry("org/both", outputs=(OutputType.DENSE, OutputType.SPARSE))
IMAGE = entry("org/image", family="image_encoder", inputs=("image",), outputs=(OutputType.DENSE,))
OTHER = entry("org/other", family="other", outputs=(OutputType.DENSE,))
NER = entry("org/ner", family="token_classifier", tasks=(Task.EXTRACT,))
NER_SPACY = entry("org/ner-spacy", family="spacy_ner", tasks=(Task.EXTRACT,))
PHOTO = entry("org/photo", family="detector", tasks=(Task.EXTRACT,), inputs=("image",))
PAGE = entry("org/page", family="page", tasks=(Task.EXTRACT,), inputs=("image", "document"))


@pytest.mark.parametrize(
    ("wanted", "among", "found"),
    [
        pytest.param(DENSE, [DENSE], None, id="never itself"),
        pytest.param(DENSE, [SPARSE, NER], None, id="no output or task in common"),
        pytest.param(DENSE, [IMAGE], None, id="no input in common"),
        pytest.param(DENSE, [OTHER, BOTH], BOTH, id="the same family before another"),
        pytest.param(PHOTO, [PAGE], None, id="objects, not the text of a page"),
        pytest.param(NER, [PHOTO, NER_SPACY], NER_SPACY, id="extraction from text, not from photographs"),
    ],
)
def test_the_nearest_entry_does_most_of_what_was_wanted(wanted, among, found):
    assert nearest(wanted, among, lambda spec: True) == found


def test_an_entry_that_does_not_run_is_passed_over():
    assert nearest(DENSE, [BOTH, OTHER], lambda spec: spec is OTHER) == OTHER


def test_what_an_entry_is_said_to_be_counts_where_its_family_does_not():
    wanted = entry("org/guard", "text_classifier", (Task.EXTRACT,), description="Finds prompt injection.")
    names = entry("org/guardian", "spacy_ner", (Task.EXTRACT,), description="Finds people and places.")
    small = entry(
        "org/nano", "nanoguard", (Task.EXTRACT,), description="Small classifier of prompt injection."
    )

    assert nearest(wanted, [names, small], lambda spec: True) == small


def test_of_equals_the_name_that_is_most_alike_is_taken():
    wanted = entry("BAAI/bge-base-en-v1.5", outputs=(OutputType.DENSE,))
    small = entry("BAAI/bge-small-en-v1.5", outputs=(OutputType.DENSE,))
    minilm = entry("sentence-transformers/all-MiniLM-L6-v2", outputs=(OutputType.DENSE,))

    assert nearest(wanted, [minilm, small], lambda spec: True) == small
