"""Templates that misbehave: they end quickly, and reach nothing."""

import threading
import time

import jinja2
import pytest

from octavo.text.sandbox import TemplateEnvironment
from octavo.text.template_budget import LimitExceeded
from octavo.text.template_functions import MAX_RANGE, TemplateRaised


def run(source, **variables):
    environment = TemplateEnvironment()
    return environment.run(environment.compile_charged(environment.parse(source)), variables)


GROWING = "{% set n = namespace(x='a') %}{% for i in range(99) %}"  # wants an {% endfor %}

RUNAWAYS = {
    "a huge range": "{% for i in range(10**9) %}x{% endfor %}",
    "a range beyond any machine": "{{ range(10**20) | length }}",
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "a text times a number": '{{ "a" * 10**9 }}',
    "a list times a number": "{{ ([1] * 10**9) | length }}",
    "a text doubled by +": GROWING + "{% set n.x = n.x + n.x %}{% endfor %}",
    "a text doubled by ~": GROWING + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a text doubled by join": GROWING + "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "a text doubled by a block": GROWING + "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "a list of itself twice": GROWING + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "a dict of itself twice": GROWING + "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x | tojson }}",
    "arguments of themselves": "{% macro m() %}{% set n.x = varargs %}{% endmacro %}" + GROWING + "{{ m(n.x, n.x) }}{% endfor %}",
    "dict() of itself": GROWING + "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "a number squared": "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "a tower of powers": "{{ 9 ** (9 ** 9) }}",
    "a wide format": "{{ '%999999999d' % 1 }}",
    "a width from the arguments": "{{ '%*d' % (999999999, 1) }}",
    "a format of large texts": "{{ ('%s' * 1000) % ((('a' * 100000),) * 1000) }}",
    "replace with something long": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "replace() with something long": "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "join with something long": "{{ ('b' * 100000).join(('a' * 100000) | list) }}",
    "a wide indent": "{{ ('a\n' * 10000) | indent(100000) }}",
    "JSON with a wide indent": "{{ [1] | tojson(indent=10**9) }}",
    "a macro that calls itself": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "a macro that branches": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless output": "{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}",
    "long searches": "{% set x = 'a' * 8000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
    "filters on long ranges": "{% for i in range(100000) %}{{ range(100000) | map('string') | list | length }}{% endfor %}",
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_runaway_ends_within_a_second(name):
    began = time.thread_time()
    with pytest.raises((LimitExceeded, RecursionError)):
        run(RUNAWAYS[name])
    assert time.thread_time() - began < 1


def test_other_threads_go_on_while_a_template_runs_away():
    turns = []
    done = threading.Event()

    def turn():
        while not done.wait(0.005):
            turns.append(time.monotonic())

    other = threading.Thread(target=turn)
    other.start()
    with pytest.raises(LimitExceeded):
        run(RUNAWAYS["nested loops"])
    done.set()
    other.join()
    assert len(turns) > 5


@pytest.mark.parametrize(
    "source",
    [
        "{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'].mro() }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ (raise_exception | attr('__globals__'))['os'] }}",
        "{{ namespace.__init__.__globals__['os'].system('x') }}",
        "{{ self.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}{{ self.x() }}",
        "{{ cycler.__init__.__globals__.os.popen('x').read() }}",
        "{{ lipsum.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{}'.format_map({}) }}",
        "{{ 'a'.encode() }}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ 'a'.center(9) }}",
        "{{ environment.run }}{{ environment.filters() }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% for x in [[1]] recursive %}{{ loop(x) }}{% endfor %}",
        "{{ messages | pprint }}",
        "{{ '%c' % 55296 }}",
    ],
)
def test_a_template_reaches_nothing(source):
    messages = [{"role": "user"}]
    with pytest.raises((jinja2.TemplateError, TypeError, LimitExceeded)):
        run(source, messages=messages)
    assert messages == [{"role": "user"}]


def test_the_environment_and_the_charges_cannot_be_shadowed():
    source = "{% set environment = 1 %}{% macro charged_items(x) %}{% endmacro %}{% for i in range(3) %}{{ i }}{% endfor %}"
    assert run(source) == "012"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ [1, 'a', none, true] | tojson }}", '[1, "a", null, true]'),
        ("{{ {'k': '<é>'} | tojson }}", '{"k": "<é>"}'),
        ("{{ {'k': 1} | tojson(indent=2) }}", '{\n  "k": 1\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{% for x in [3, 1, 2] | sort %}{{ loop.index0 }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "01,12,23"),
        (
            "{% for x in 'abc' %}{{ loop.previtem }}{{ loop.length }}{{ loop.revindex }}{{ loop.cycle('x', 'y') }} {% endfor %}",
            "33x a32y b31x ",
        ),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"),
        ("{% set ns = namespace(n=0) %}{% for x in range(5) if x % 2 %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "4"),
        ("{{ ['a', 'b'] | join('-') }}{{ [{'x': 1}, {'x': 2}] | join(',', attribute='x') }}", "a-b1,2"),
        ("{{ [{'r': 1}, {'r': 2}] | selectattr('r', 'equalto', 2) | list | length }}", "1"),
        ("{{ [{'r': 1}, {'r': 2}] | map(attribute='r') | list }}", "[1, 2]"),
        ("{{ 'a' ~ 1 ~ none ~ [1] }}", "a1None[1]"),
        ("{{ '%s-%02d' % ('a', 3) }}{{ 7 // 2 }}{{ 2 ** 10 }}{{ -7 % 3 }}", "a-03310242"),
        ("{{ 'a\nb' | indent(2) }}{{ ' x ' | trim }}{{ 'X' | lower }}{{ undefined_thing | default('d') }}", "a\n  bxxd"),
        ("{{ x is defined }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}", "FalseTrueTrueTrue"),
        ("{% macro f(a, b='z') %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{% call f(2, 3) %}!{% endcall %}", "1z23!"),
        ("{{ '<b>' | safe }}{% generation %}said{% endgeneration %}", "<b>said"),
        ("{{ strftime_now('%Y') | length }}{{ dict(a=1).get('b', 2) }}", "42"),
        ("{{ 'a,b'.split(',')[1] }}{{ 'xax'.strip('x') }}{{ 'ab'.replace('a', 'c', 1) }}{{ '-'.join(['p', 'q']) }}", "bacbp-q"),
    ],
)
def test_what_chat_templates_do_works_as_in_jinja(source, text):
    assert run(source) == text


def test_a_template_may_refuse():
    with pytest.raises(TemplateRaised, match="roles must alternate"):
        run("{{ raise_exception('roles must alternate') }}")


def test_a_long_conversation_stays_within_the_budget():
    messages = [{"role": "user", "content": "word " * 200} for _ in range(4000)]
    text = run(
        "{% for m in messages %}{{ '<' ~ m.role + '>' + m['content'] | trim + '\n' }}{% if m.role == 'x' %}{% endif %}{% endfor %}",
        messages=messages,
    )
    assert len(text) == 4000 * 1006


def test_ranges_up_to_the_limit_work():
    assert run("{{ range(n) | length }}", n=MAX_RANGE) == str(MAX_RANGE)
