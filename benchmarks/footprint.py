"""What Octavo costs to have and to start: installed size with all dependencies, and the time from launch to /health 200.

python benchmarks/footprint.py [--limit-mb 150] [--starts 5] [MODEL]
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def closure(root: str) -> dict[str, int]:
    """Return the bytes of each distribution that `root` needs, itself included, extras left out."""
    sizes: dict[str, int] = {}
    wanted = [root]
    while wanted:
        name = wanted.pop()
        if name in sizes:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            continue  # a marker that does not apply here
        files = (Path(str(dist.locate_file(file))) for file in dist.files or [])
        sizes[name] = sum(file.stat().st_size for file in files if file.exists())
        for requirement in dist.requires or []:
            if "extra ==" not in requirement:
                wanted.append(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0].lower().replace("_", "-"))
    return sizes


def start_seconds(model: str) -> float:
    """Return the seconds from launching `octavo serve` to the first 200 of /health."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begin = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "octavo.cli.main", "serve", model, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while time.perf_counter() - begin < 60:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                    if answer.status == 200:
                        return time.perf_counter() - begin
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)
        raise SystemExit("the server did not answer within 60 s")
    finally:
        server.terminate()
        server.wait(20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--limit-mb", type=float, default=150)
    parser.add_argument("--starts", type=int, default=5)
    arguments = parser.parse_args()

    sizes = closure("octavo")
    total_mb = sum(sizes.values()) / 1e6
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
        print(f"{size / 1e6:8.1f} MB  {name}")
    print(f"{total_mb:8.1f} MB  all {len(sizes)} packages (limit {arguments.limit_mb:g} MB)")

    starts = sorted(start_seconds(arguments.model) for _ in range(arguments.starts))
    print(f"launch to /health 200: median {statistics.median(starts):.2f} s of {len(starts)} (min {starts[0]:.2f}, max {starts[-1]:.2f})")
    return 0 if total_mb <= arguments.limit_mb else 1


if __name__ == "__main__":
    sys.exit(main())
