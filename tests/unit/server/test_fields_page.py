from pathlib import Path

from octavo.server.fields import fields_markdown


def test_the_page_about_fields_is_made_from_the_schemas():
    page = (Path(__file__).parents[3] / "docs" / "fields.md").read_text()
    assert page.endswith(fields_markdown())
