"""`octavo bench serve`: a load test of a running OpenAI-compatible server, Octavo's or another's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.bench.figures import TIMES
from octavo.bench.report import page
from octavo.bench.serving import Run
from octavo.cli.bench_serve_view import block
from octavo.cli.load_test import measure, save
from octavo.cli.load_test_flags import load_test_parser
from octavo.errors import ConfigError

COMMON_SHARE = 0.2  # of the input tokens; a chat template's opening may be as much


def bench_serve_main(argv: Sequence[str]) -> int:
    args = load_test_parser("serve", "Load a running server and measure what its users see.").parse(argv)
    shown = _times(args.percentile_metrics)
    result, run = measure(args)
    print(block(result, shown, run))
    _warn_of_a_warm_cache(args, result)
    if args.save_result or args.save_detailed:
        save(args, result | _details(run) if args.save_detailed else result)
    if args.html:
        Path(args.html).write_text(page(f"{result['model_id']}, {result['dataset_name']}", result, run))
        print(f"report: {args.html}")
    return 0 if result["completed"] else 1


def _times(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in TIMES:
            raise ConfigError(f"--percentile-metrics names {name!r}; it knows {', '.join(TIMES)}")
    return names


def _warn_of_a_warm_cache(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    cached, given = result["cached_input_tokens"], result["total_input_tokens"]
    if args.dataset_name == "random" and not args.random_prefix_len and cached > COMMON_SHARE * given:
        print(
            f"note: {cached:,} of {given:,} input tokens came from the server's prefix cache though no prefix is shared: it has "
            "seen these prompts before. Give another --seed, or --prefix-cache reset.",
            file=sys.stderr,
        )


def _details(run: Run) -> dict[str, Any]:
    answers = [record.answer for record in run.records]
    return {
        "input_lens": [record.input_len for record in run.records],
        "output_lens": [answer.num_output_tokens for answer in answers],
        "start_times": [record.start_s for record in run.records],
        "ttfts": [answer.ttft_s for answer in answers],
        "itls": [answer.itls_s for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [answer.error or "" for answer in answers],
    }
