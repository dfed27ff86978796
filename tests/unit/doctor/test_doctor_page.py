"""docs/doctor.md tells every rule as the code has it."""

from pathlib import Path

from octavo.doctor.diagnosis import rules_markdown


def test_the_page_holds_the_rules_as_they_are():
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    assert page.split("<!-- rules -->\n")[1] == rules_markdown()
