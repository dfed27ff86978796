from pathlib import Path

import pytest

from octavo.server.fields import TEXT_COLUMNS, VECTOR_COLUMNS, fields_markdown
from octavo.server.routes import ENDPOINTS

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"


@pytest.mark.parametrize("columns", [TEXT_COLUMNS, VECTOR_COLUMNS], ids=["text", "vectors"])
def test_the_page_about_fields_is_made_from_the_schemas(columns):
    assert f"\n\n{fields_markdown(columns)}" in PAGE.read_text()


def test_every_body_of_the_api_has_a_column():
    bodies = {body for endpoint in ENDPOINTS for body in endpoint.bodies if not endpoint.path.startswith("/ui/")}
    assert bodies == {*TEXT_COLUMNS.values(), *VECTOR_COLUMNS.values()}
