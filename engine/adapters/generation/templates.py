"""Chat templates, rendered as transformers renders them, within bounds: whoever wrote one is not trusted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any, cast

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.adapters.generation.allowance import Allowance, TooMuch, weight
from engine.adapters.generation.costs import COMPARING, HANDING_ON, cost, formatted, listed, product, written

FAILING = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What rendering raises: what templates say, TooMuch among it, and what filters and operators do."""


class Template:
    """One compiled template. Any thread may render it."""

    def __init__(self, text: str) -> None:
        """Raises TemplateError for one that cannot be read."""
        self._environment = Bounded()
        with self._environment.allowing(Allowance(len(text))):
            self._template = self._environment.from_string(text)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> str:
        """As `apply_chat_template` with a generation prompt; `variables`: the special tokens.

        Raises one of `FAILING`.
        """
        given: dict[str, Any] = {"messages": list(messages), "tools": list(tools) or None}
        allowance = Allowance(weight(given))
        pieces: list[str] = []
        with self._environment.allowing(allowance):
            for piece in self._template.generate(
                **variables, **given, documents=None, add_generation_prompt=True
            ):
                allowance.write(len(piece))
                pieces.append(piece)
        return "".join(pieces)


class _Generation(Extension):
    """`{% generation %}` tells a trainer what the model wrote; here it is only what it holds."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_held"), [], [], body).set_lineno(line)

    def _held(self, caller: Macro) -> Any:
        return caller()


class _Code(CodeGenerator):
    """Sends what jinja2 does without the environment's knowledge through it."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.checked(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.checked(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        read = node.ctx == "load"
        self.write("environment.checked(" if read else "")
        super().visit_Tuple(node, frame)
        self.write(")" if read else "")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(environment.compared(")
        self.visit(node.expr, frame)
        self.write(")")
        for operand in node.ops:
            paid = "searched" if operand.op in ("in", "notin") else "compared"
            self.write(f" {operators[operand.op]} environment.{paid}(")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")


class Bounded(ImmutableSandboxedEnvironment):
    """The sandbox that transformers uses, whose loops, calls, operators, tests and filters are paid for."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Code

    def __init__(self) -> None:
        self._now = threading.local()
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _tojson
        self.filters = {name: self._paid(name, filter) for name, filter in self.filters.items()}
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": _strftime_now,
        }
        self.tests |= {name: self._comparing(cast(Any, self.tests[name])) for name in COMPARING}
        del self.globals["lipsum"]  # text by the million words, and of no use here
        self.concat = self._concat  # type: ignore[method-assign]
        self.finalize = self._shown

    @contextmanager
    def allowing(self, allowance: Allowance) -> Iterator[None]:
        """What this thread does inside is paid for by `allowance`."""
        self._now.allowance = allowance
        try:
            yield
        finally:
            del self._now.allowance

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            turn = nodes.Call(nodes.EnvironmentAttribute("turn"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(turn).set_lineno(loop.lineno))
        tree.set_environment(self)
        return tree

    def turn(self) -> None:
        """Of a loop. Paid for as any call."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        allowance: Allowance = __self._now.allowance
        allowance.step()
        if isinstance(of := getattr(__obj, "__self__", None), str | bytes | int | list | tuple):
            args, kwargs = listed(args), dict(zip(kwargs, listed(kwargs.values()), strict=True))
            allowance.take(cost(__obj.__name__, of, args, kwargs.values()))
        elif __obj is Namespace or __obj is dict:
            weight([args, kwargs])
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._now.allowance.take(product(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        @wraps(wrapped)
        def paid(*args: Any, **kwargs: Any) -> str:
            self._now.allowance.take(formatted(value.__self__, [*args, *kwargs.values()]))
            return wrapped(*args, **kwargs)

        return paid

    def joined(self, values: tuple[Any, ...]) -> str:
        """What `~` does."""
        self._now.allowance.take(sum(map(written, values)))
        return "".join(map(str, values))

    def checked(self, made: Any) -> Any:
        """What was just made of other values, which double with each that holds another twice."""
        self._now.allowance.take(weight(made))
        return made

    def compared(self, value: Any) -> Any:
        """What is compared with another to the depth of both."""
        if not isinstance(value, str):
            self._now.allowance.take(written(value))
        return value

    def searched(self, value: Any) -> Any:
        """In which `in` looks: of a mapping at one key alone."""
        return value if isinstance(value, Mapping) else self.compared(value)

    def _comparing(self, test: Callable[..., Any]) -> Callable[..., Any]:
        def paid(value: Any, *others: Any) -> Any:
            return test(self.compared(value), *map(self.searched, others))

        return paid

    def _concat(self, pieces: Iterable[str]) -> str:
        pieces = list(pieces)
        self._now.allowance.take(sum(map(len, pieces)))
        return "".join(pieces)

    def _shown(self, value: Any) -> Any:
        if not isinstance(value, str):
            self._now.allowance.take(written(value))
        return value

    def _paid(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        """The filter; `wraps` keeps the mark of those that take the context first."""
        at = 1 if hasattr(filter, "jinja_pass_arg") else 0

        @wraps(filter)
        def paid(*args: Any, **kwargs: Any) -> Any:
            first, (value, *rest) = args[:at], listed(args[at:])
            named = dict(zip(kwargs, listed(kwargs.values()), strict=True))
            if isinstance(value, str) or name not in HANDING_ON:
                self._now.allowance.take(cost(name, value, rest, named.values()))
            else:
                self._now.allowance.step()
            return filter(*first, value, *rest, **named)

        return paid


def _strftime_now(form: str) -> str:
    if len(form) > 1000:
        raise TooMuch("the model's chat template asks for the time in too many words")
    return datetime.now().astimezone().strftime(form)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: jinja2's own is made safe for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
