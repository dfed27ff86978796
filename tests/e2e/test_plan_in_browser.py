"""`octavo plan --web` in a headless Chromium: sliders by keyboard, the numbers on the page, what leaves the machine, how it looks.

Needs a Chromium (`apt-get install chromium`) and playwright; `make test-browser` runs it. With OCTAVO_SCREENSHOTS=FOLDER it also
writes the screenshots of the docs.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.live import live

from octavo.config.server_schema import ServerConfig
from octavo.planner.catalogue import api_rates, find_device, find_model_shape, find_workload
from octavo.planner.explain import derive
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.plan import make_plan
from octavo.planner.sizing import Deployment
from octavo.server.app import create_app
from octavo.server.plan.endpoints import PLAN_ENDPOINTS
from octavo.units import format_bytes

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REFUSED = "status of 400"  # Chromium tells of each such answer
SHARED = "#weights=fp8&kv_cache_dtype=fp8&utilization=0.3"

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]


@pytest.fixture(scope="module")
def address():
    command = [sys.executable, "-m", "octavo.cli.main", "plan", "--web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield re.search(r"http\S+", server.stdout.readline()).group()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, address):
    """A page that fails the test when its script does, or when it asks anyone but its own server."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" and REFUSED not in message.text else None)
    page.on("request", lambda request: None if request.url.startswith(origin(address)) else wrong.append(request.url))
    yield page
    assert not wrong
    context.close()


def origin(address):
    return address.removesuffix("/ui/plan")


def settled(page):
    page.wait_for_selector("#plan[aria-busy=false] #tiles .n")


def open_at(page, address, setting=""):
    page.goto("about:blank")
    page.goto(address + setting)
    settled(page)


def press(page, control, key, times=1):
    """Press a key on a control and wait for the plan that it leads to."""
    page.focus(f"#{control}")
    for _ in range(times):
        page.keyboard.press(key)
    settled(page)


def shown(page, name):
    return page.locator(f'.n[data-why="{name}"]').first.inner_text()


def planned(*, conversation=10_240, **changes):
    """Return the derivations, by name, of what the page shows at SHARED with `changes`."""
    where = Deployment(find_model_shape("qwen3-32b"), find_device("H100-80G"), weight_format("fp8"), kv_format("fp8"), **changes)
    mix = find_workload("agentic")
    plan = make_plan(where, conversation=conversation, utilization=0.3, usd_per_hour=3.49, workloads=[mix], apis=api_rates())
    return {line.name: line.result for line in derive(where, plan)}


def assert_numbers(page, numbers):
    assert shown(page, "weights") == format_bytes(numbers["weights"])
    assert shown(page, "available for KV") == format_bytes(numbers["available for KV"])
    assert shown(page, "max concurrency") == f"{numbers['max concurrency']:.2f}x"
    for name in ("blocks", "tokens", "sequences of 2,048", "sequences of 131,072"):
        assert shown(page, name) == f"{numbers[name]:,}"
    for name in ("tokens/s alone at 8,192", "tokens/s in all at 8,192"):
        assert shown(page, name) == f"{numbers[name]:,.1f}"
    for name in ("$ a million output tokens, agentic", "$ a million output tokens at the given utilization, agentic"):
        assert shown(page, name) == f"${numbers[name]:.3f}"
    assert shown(page, "break-even against gpt-6-sol, agentic") == f"{100 * numbers['break-even against gpt-6-sol, agentic']:.1f} %"


def test_a_shared_setting_shows_the_numbers_of_the_planner(page, address):
    open_at(page, address, SHARED)
    assert_numbers(page, planned())


def test_sliders_move_by_keyboard_and_the_numbers_and_the_address_move_with_them(page, address):
    open_at(page, address, SHARED)
    press(page, "tensor_parallel_size", "ArrowRight")
    assert_numbers(page, planned(tp=2))
    press(page, "tensor_parallel_size", "Home")
    press(page, "gpu_memory_utilization", "End")
    assert_numbers(page, planned(utilization=1.0))
    press(page, "gpu_memory_utilization", "ArrowLeft", 50)
    press(page, "conversation", "ArrowRight")
    numbers = planned(utilization=0.5, conversation=12_288)
    assert_numbers(page, numbers)
    assert shown(page, "sequences of 12,288") == f"{numbers['sequences of 12,288']:,}"
    assert page.get_attribute("#conversation", "aria-valuetext") == "12,288"
    assert page.url == address + SHARED.replace("&utilization", "&gpu_memory_utilization=0.5&conversation=12288&utilization")


def test_every_slider_takes_the_keyboard_to_both_its_ends(page, address):
    open_at(page, address, "#model=numbers&device=numbers&workload=own&usd_per_hour=2")
    page.evaluate("document.querySelectorAll('form details').forEach((part) => (part.open = true))")
    names = page.eval_on_selector_all("input[type=range]", "inputs => inputs.map((input) => input.id)")
    assert len(names) > 20
    for name in names:
        for key, end in (("Home", "min"), ("End", "max")):
            press(page, name, key)
            assert page.input_value(f"#{name}") == page.get_attribute(f"#{name}", end)
            assert page.is_hidden("#error"), (name, key, page.inner_text("#error"))


def test_a_number_shows_its_formula_and_gives_the_focus_back(page, address):
    open_at(page, address, SHARED)
    page.focus('#tiles .n[data-why="tokens"]')
    page.keyboard.press("Enter")
    for words in ("available // bytes a token, times dp", "40964308583 // 131072.0", "312,532"):
        assert words in page.inner_text("#why")
    press(page, "data_parallel_size", "ArrowRight")
    assert "625,064" in page.inner_text("#why")  # it stays open and follows
    page.keyboard.press("Escape")
    assert page.is_hidden("#why")
    assert page.evaluate("document.activeElement.dataset.why") == "tokens"


def test_no_number_on_the_page_is_without_a_formula(page, address):
    open_at(page, address, SHARED)
    derived = set(page.eval_on_selector_all("#derivations tbody th", "cells => cells.map((cell) => cell.textContent)"))
    buttons = page.eval_on_selector_all(".n", "buttons => buttons.map((button) => button.dataset.why)")
    assert len(buttons) > 50
    assert set(buttons) <= derived
    assert page.locator("#tiles dd:not(:has(.n))").count() == 0


def test_what_cannot_be_is_said_and_the_next_setting_clears_it(page, address):
    open_at(page, address, "#model=smollm2-135m")
    press(page, "tensor_parallel_size", "ArrowRight")
    assert "9 query heads, which 2 tensor-parallel ranks cannot share evenly" in page.inner_text("#error")
    press(page, "tensor_parallel_size", "ArrowLeft")
    assert page.is_hidden("#error")
    page.select_option("#model", "deepseek-v3")
    settled(page)
    assert "It does not fit" in page.inner_text("#notes")


def test_a_garbled_address_leaves_what_it_garbles_as_it_begins(page, address):
    open_at(page, address, "#model=numbers&layers=abc&kv_heads=&block_size=auto&nix=1&__proto__=2&conversation=777")
    assert (page.input_value("#layers"), page.inner_text("output[for=layers]"), page.inner_text("output[for=kv_heads]")) == (
        "63",
        "64",
        "8",
    )
    assert page.inner_text("output[for=conversation]") == "777"  # no step of the slider, but a setting
    assert page.url == f"{address}#model=numbers&conversation=777"


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_is_wider_than_the_screen(page, address, width):
    page.set_viewport_size({"width": width, "height": 800})
    open_at(page, address, SHARED)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    open_at(page, address, SHARED)
    pairs = page.evaluate(CONTRAST)
    assert len(pairs) > 20
    assert all(contrast >= 4.5 for _, contrast in pairs), sorted(pairs, key=lambda pair: pair[1])[:5]
    picture = page.screenshot(full_page=True)
    assert picture.startswith(b"\x89PNG")
    if folder := os.environ.get("OCTAVO_SCREENSHOTS"):
        (Path(folder) / f"plan-{scheme}.png").write_bytes(picture)


# [text, contrast of its colour with what lies behind it] of every label, cell and number, by WCAG 2.2.
CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (text) => {
    const [r, g, b] = rgb(text).slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (rgb(colour)[3] !== 0) return colour;
    }
  };
  return [...document.querySelectorAll("label, dt, dd, th, td, .n, h1, h2, p, li, summary, output")]
    .filter((element) => element.offsetParent && element.textContent.trim())
    .map((element) => {
      const [low, high] = [getComputedStyle(element).color, behind(element)].map(luminance).sort((a, b) => a - b);
      return [element.textContent.trim().slice(0, 40), (high + 0.05) / (low + 0.05)];
    });
}"""


def test_a_server_with_keys_is_given_one_by_the_page(browser):
    with live(create_app(None, ServerConfig(api_key=("sk-right",)), PLAN_ENDPOINTS)) as server:
        page = browser.new_page()
        page.goto(f"{server.url}/ui/plan")
        for key in ("sk-wrong", "sk-right"):
            page.wait_for_selector("#key[open]")
            page.keyboard.type(key)
            page.keyboard.press("Enter")
        settled(page)
        assert shown(page, "weights") == "61.0 GiB"
        page.close()
