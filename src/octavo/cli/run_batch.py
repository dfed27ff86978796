"""`octavo run-batch -i IN.jsonl -o OUT.jsonl`: OpenAI batch files, answered by an engine of its own, with no socket open.

Each line of the input is one request, each line of the output its answer or its error; a bad line costs itself only. Lines
are written as they are answered. Run again with the same files, it answers only what the output lacks: what failed has one
record, the newest.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from octavo.config.flag_parser import FlagParser, flag_type
from octavo.config.flags import ENGINE_GROUPS
from octavo.config.resolve import resolve
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError
from octavo.units import parse_int

MAX_BODY_BYTES = 8 << 20


@dataclass(frozen=True)
class Item:
    """One line of the input. `fault` says why it cannot be sent at all, else None."""

    custom_id: str | None
    path: str
    body: bytes
    fault: str | None = None


@dataclass(frozen=True)
class Record:
    """One line of the output: an answer or an error."""

    line: bytes
    custom_id: str | None
    is_answer: bool


def run_batch_main(argv: Sequence[str]) -> int:
    parser = FlagParser("octavo run-batch", "Answer an OpenAI batch file.", ENGINE_GROUPS, usage="octavo run-batch -i IN -o OUT [FLAGS]")
    parser.add_argument("-i", "--input-file", metavar="FILE", help="JSON Lines of {custom_id, method, url, body}")
    parser.add_argument("-o", "--output-file", metavar="FILE", help="where the answers go; those already there are kept")
    parser.add_argument(
        "--max-concurrency", type=flag_type(parse_int), default=256, metavar="N", help="requests given to the engine at once [256]"
    )
    args = parser.parse(argv)
    if args.input_file is None or args.output_file is None:
        raise ConfigError("a batch needs -i FILE and -o FILE")
    for name in (args.input_file, args.output_file):
        if "://" in name:
            raise ConfigError(f"{name} is a URL; fetch the file first, and name it by its path")
    if args.max_concurrency < 1:
        raise ConfigError(f"--max-concurrency is {args.max_concurrency}; it must be at least 1")
    source, target = Path(args.input_file), Path(args.output_file)
    records = read_records(target)
    items = open_items(read_items(source), records)
    if num_answers := sum(record.is_answer for record in records):
        print(f"{num_answers:,} answers are in {target.name} already; {len(items):,} requests are left", file=sys.stderr)
    make_room(target, records, items)
    failed = asyncio.run(_run(resolve(parser.given(args)).engine, items, target, args.max_concurrency)) if items else 0
    print(f"{len(items) - failed:,} answered, {failed:,} failed: {target}")
    return 0


def read_items(path: Path) -> Iterator[Item]:
    """Yield the requests of a batch file; what cannot be read as one carries its fault. Raises ConfigError when the file cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            item = _item(line, number)
            if item.custom_id in seen:
                item = Item(item.custom_id, "", b"", f"line {number}: its custom_id has been used by an earlier line")
            if item.custom_id is not None:
                seen.add(item.custom_id)
            yield item


def _item(line: bytes, number: int) -> Item:
    try:
        fields: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Item(None, "", b"", f"line {number} is no JSON: {error}")
    if not isinstance(fields, dict) or not isinstance(fields.get("custom_id"), str):
        return Item(None, "", b"", f"line {number} is no object with a custom_id")
    custom_id, path, body = fields["custom_id"], fields.get("url"), fields.get("body")
    if fields.get("method") != "POST":
        return Item(custom_id, "", b"", f"line {number}: method must be POST")
    if not isinstance(path, str) or not path.startswith("/") or not isinstance(body, dict):
        return Item(custom_id, "", b"", f"line {number}: url must be a path such as /v1/chat/completions, and body an object")
    if body.get("stream"):
        return Item(custom_id, "", b"", f"line {number}: a batch has no streams; leave stream out")
    return Item(custom_id, path, orjson.dumps(body))


def read_records(path: Path) -> list[Record]:
    """Return the whole lines of the output; none when there is no such file yet."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    whole = [(line, orjson.loads(line)) for line in lines if line.endswith(b"\n")]
    return [Record(line, fields["custom_id"], fields["error"] is None) for line, fields in whole]


def open_items(items: Iterable[Item], records: Iterable[Record]) -> list[Item]:
    """Return the requests that have no answer yet."""
    answered = {record.custom_id for record in records if record.is_answer and record.custom_id is not None}
    return [item for item in items if item.custom_id not in answered]


def make_room(path: Path, records: Sequence[Record], items: Iterable[Item]) -> None:
    """Take out of the output what `items` get a new record for, and a last line that was cut short."""
    asked = {item.custom_id for item in items}
    kept = b"".join(record.line for record in records if record.is_answer or record.custom_id not in asked)
    if path.exists() and path.stat().st_size != len(kept):
        partial = path.with_name(f"{path.name}.partial")
        partial.write_bytes(kept)
        partial.replace(path)


async def _run(config: EngineConfig, items: Sequence[Item], target: Path, max_concurrency: int) -> int:
    from octavo.client.async_engine import AsyncEngine
    from octavo.server.app import create_app

    engine = await AsyncEngine.start(config)
    try:
        app = create_app(engine, ServerConfig(max_body_bytes=MAX_BODY_BYTES, log_level="error"))
        return await answer_all(app, items, target, max_concurrency)
    finally:
        await engine.stop()


async def answer_all(app: Any, items: Sequence[Item], target: Path, max_concurrency: int) -> int:
    """Append an answer for every item to `target`; return how many failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    places = asyncio.Semaphore(max_concurrency)
    failed = 0
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with target.open("ab") as output, Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=len(items))

        async def answer(item: Item) -> None:
            nonlocal failed
            async with places:
                record = await _answer(app, item)
            failed += record["error"] is not None
            output.write(orjson.dumps(record) + b"\n")
            output.flush()
            bar.advance(task)

        await asyncio.gather(*map(answer, items))
    return failed


async def _answer(app: Any, item: Item) -> dict[str, Any]:
    from octavo.server.inline import post

    record: dict[str, Any] = {"id": f"batch_req_{secrets.token_hex(12)}", "custom_id": item.custom_id, "response": None, "error": None}
    if item.fault is not None:
        return record | {"error": {"code": "invalid_batch_line", "message": item.fault}}
    status, request_id, body = await post(app, item.path, item.body)
    answer = orjson.loads(body)
    response = {"status_code": status, "request_id": request_id, "body": answer}
    return record | {"response": response, "error": None if status == 200 else answer.get("error", answer)}
