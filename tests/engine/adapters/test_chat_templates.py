"""Chat templates of directories: as transformers renders them, and never more than they may take."""

import pytest
import transformers
from jinja2 import TemplateError

from engine.adapters.forward.weights import BadWeights
from engine.adapters.generation import allowance, probing, templates
from engine.adapters.generation.allowance import TooMuch
from engine.adapters.generation.chat import Chat
from engine.errors import InvalidInput
from tests.engine.adapters.tiny_decoders import EOS, TEMPLATE, byte_level
from tests.weights import weights

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is <b>ä</b>?"},
    {"role": "assistant", "content": "A letter."},
    {"role": "user", "content": "Well?"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
DOUBLED = (
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = WAY %}{% endfor %}{{ n.x }}"
)
READING = ["upper", "safe", "trim", "sort | first"]
SWELLING = [
    "{{ 'a' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ 9 ** 999999999 }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%10000000000d'.encode() % 1 }}",
    "{{ 'aaaaaaaaaa'.translate({97: 'b' * 60000000}) }}",
    "{{ '\t'.expandtabs(10000000000) }}",
    "{{ '%*d' | format(10000000000, 1) }}",
    "{{ '{:>10000000000}'.format('a') }}",
    "{{ '{:{w}}'.format('a', w=10000000000) }}",
    "{{ 'a'.ljust(10000000000) }}",
    "{{ (1).to_bytes(10000000000) }}",
    "{{ 'a' | center(10000000000) }}",
    "{{ 'a\nb' | indent(10000000000) }}",
    "{{ messages | tojson(indent=10000000000) }}",
    "{{ ['a'] | batch(10000000000, 'x') | list }}",
    "{{ 5 | round(-10000000000) }}",
    "{{ (5 | round(precision=10000000000, method='ceil')) }}",
    "{{ 5 | center(10000000000) }}",
    "{{ ('a' * 100000) | replace(new='b' * 100000, old='a') }}",
    "{{ ([[1]] * 4000) | sum(start=[]) }}",
    "{{ ('a' * 20000) | wordwrap(1) }}",
    *(f"{{% set x = ['A' * 10000] * 9000 %}}{{{{ (x | {way}) is true }}}}" for way in READING),
    *(
        "{% set a = range(500) | list %}{% set b = range(500) | list %}"
        "{% set x = [a] * 900 %}{% set y = [b] * 900 %}"
        f"{{{{ {way} }}}}"
        for way in ("x == y", "b in x", "x is eq(y)", "b is in(x)", "x.count(b)", "x is upper")
    ),
    "{% set d = {'a': 'A' * 10000} %}{{ ([d.items()] * 9000) | string is true }}",
    DOUBLED.replace("WAY", "n.x + n.x"),
    DOUBLED.replace("WAY", "n.x ~ n.x"),
    DOUBLED.replace("WAY", "n.x | replace('a', 'aa')"),
    DOUBLED.replace("WAY", "n.x.replace('a', 'aa')"),
    DOUBLED.replace("WAY", "[n.x, n.x]"),
    DOUBLED.replace("WAY", "(n.x, n.x)").replace("{{ n.x }}", ""),
    DOUBLED.replace("WAY", "{'a': n.x, 'b': n.x}").replace("{{ n.x }}", ""),
    DOUBLED.replace("WAY", "namespace(x=n)"),
    DOUBLED.replace("WAY", "namespace(x=n.x, y=n.x)").replace("{{ n.x }}", ""),
]
ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}a{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
]


def saved(path, template):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=EOS)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    return path


def rendered(template, messages=MESSAGES, tools=()):
    return templates.Template(template).render(messages, tools, {"eos_token": EOS})


@pytest.mark.parametrize("template", SWELLING)
def test_a_template_cannot_make_a_value_larger_than_it_may(template, monkeypatch):
    monkeypatch.setattr(allowance, "NODES", 10_000)
    with pytest.raises(TooMuch):
        rendered(template)


@pytest.mark.parametrize("template", ENDLESS)
def test_a_template_that_does_not_end_is_ended(template, monkeypatch):
    monkeypatch.setattr(allowance, "SECONDS", 0.1)
    with pytest.raises(TooMuch, match="computes for more than"):
        rendered(template)


def test_a_template_writes_no_more_than_some_times_the_conversation(monkeypatch):
    monkeypatch.setattr(allowance, "OUTPUT", 1000)
    with pytest.raises(TooMuch, match="writes far more"):
        rendered("{% for i in range(50000) %}a{% endfor %}")
    assert len(rendered("{% for i in range(900) %}a{% endfor %}")) == 900


@pytest.mark.parametrize("template", [SWELLING[0], ENDLESS[0], "{% if %}", "{% for m in messages %}"])
def test_a_directory_whose_template_takes_too_much_does_not_load(template, tmp_path):
    path = saved(tmp_path, template)
    with pytest.raises(BadWeights, match="chat template cannot be used"):
        Chat(path, 1000, trust_remote_code=False)


def test_what_the_bounds_do_not_see_ends_the_child_alone(monkeypatch):
    monkeypatch.setattr(probing, "SECONDS", 0.0)
    with pytest.raises(BadWeights, match="takes longer"):
        probing.probe(TEMPLATE + " ", {})


def test_a_template_that_is_well_until_a_word_comes_is_refused_to_its_sender(tmp_path):
    chat = Chat(
        saved(tmp_path, "{% if 'boom' in messages[0].content %}{{ 'a' * 10000000000 }}{% endif %}ok"),
        1000,
        trust_remote_code=False,
    )

    with pytest.raises(InvalidInput, match="larger values than it may"):
        chat.conversation([{"role": "user", "content": "boom"}])
    assert bytes(chat.conversation([{"role": "user", "content": "well"}])) == b"ok"


@pytest.mark.parametrize("broken", ["5 | dictsort", "1 // 0", "messages.nothing.more", "{}['a'] + 1"])
def test_what_a_template_cannot_do_with_a_conversation_is_said_to_its_sender(broken, tmp_path):
    chat = Chat(
        saved(tmp_path, f"{{% if messages[0].content == 'boom' %}}{{{{ {broken} }}}}{{% endif %}}ok"),
        1000,
        trust_remote_code=False,
    )

    with pytest.raises(InvalidInput, match="messages: "):
        chat.conversation([{"role": "user", "content": "boom"}])


ORDINARY = """
{%- macro said(m) %}{{ m.role | upper }}: {{ m['content'] | trim }}{% endmacro -%}
{% set n = namespace(last=-1, all='') %}
{% for m in messages %}{% if m.role == 'user' %}{% set n.last = loop.index0 %}{% endif %}{% endfor %}
{% for m in messages if m.content is string %}
    {% if loop.first and m.role == 'system' %}{% continue %}{% endif %}
{{ said(m) }}{{ ', ' if not loop.last }}{{ loop.length }}{{ loop.cycle('x', 'y') }}
    {% set n.all = n.all + m.content.strip() ~ '%s/%d' % ('a', loop.index) %}
{% endfor %}
{{ messages | map(attribute='role') | join('|') }} {{ messages[0] | tojson(indent=2) }}
{{ (tools or []) | tojson }}{{ [1, 2] + [3] }}{{ messages[::-1][0].content.replace('W', 'ww') }}
{{ n.all }} {{ '{}-{:>4}'.format(1, 'b') }} {{ none }} {{ missing }} {{ 2 ** 3 * 'ab' }} {{ eos_token }}
{% generation %}held{% endgeneration %}{{ {'a': 1}.items() | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{% if add_generation_prompt %}>{% endif %}
{{ ('a,b').split(',') | reverse | list }}{{ 1.5 | round | int }}{{ 2.345 | round(2) }}
{{ {'b': 1, 'a': 2} | dictsort }} {{ 1 < 2 <= 2 != 3 }} {{ 'role' in messages[0] and 1 not in [2] }}
{{ [3, 1] | sort | string }} {{ 'a-b' | replace('-', new=':') }}
"""


@pytest.mark.parametrize("template", [TEMPLATE, ORDINARY])
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_template_is_rendered_as_transformers_renders_it(template, tools):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token=EOS)
    tokenizer.chat_template = template
    expected = tokenizer.apply_chat_template(
        MESSAGES, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
    )

    assert rendered(template, MESSAGES, tools) == expected


def test_the_template_of_smollm2_is_rendered_as_transformers_renders_it():
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights("HuggingFaceTB/SmolLM2-135M-Instruct"))
    for messages in (MESSAGES, MESSAGES[1:], [{"role": "user", "content": "word " * 50_000}]):
        expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ours = templates.Template(tokenizer.chat_template).render(messages, (), tokenizer.special_tokens_map)
        assert ours == expected


def test_what_a_template_says_itself_reaches_the_sender():
    with pytest.raises(TemplateError, match="no such role"):
        rendered("{{ raise_exception('no such role') }}")
