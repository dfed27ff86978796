"""What Octavo costs to have: installed size with all dependencies.

python benchmarks/footprint.py [--limit-mb 150]
"""

from __future__ import annotations

import argparse
import re
import sys
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit-mb", type=float, default=150)
    arguments = parser.parse_args()

    sizes = closure("octavo")
    if "octavo" not in sizes:
        raise SystemExit("octavo is not installed in this environment; run this with .venv/bin/python after make install")
    total_mb = sum(sizes.values()) / 1e6
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:12]:
        print(f"{size / 1e6:8.1f} MB  {name}")
    print(f"{total_mb:8.1f} MB  all {len(sizes)} packages (limit {arguments.limit_mb:g} MB)")
    return 0 if total_mb <= arguments.limit_mb else 1


if __name__ == "__main__":
    sys.exit(main())
