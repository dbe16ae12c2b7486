"""Links between the pages lead to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])

_FENCED = re.compile(r"^```.*?^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    """What is written on a page, without its blocks of code."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """By what name its headings are linked to, as a site or a forge makes it of them."""
    bare = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in _HEADING.findall(text_of(page)))
    return {re.sub(r"\s+", "-", heading) for heading in bare}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(text_of(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def test_a_heading_is_found_by_the_name_that_sites_give_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Refs, and what may cross\n\n```sh\n# a comment\n```\n\n## The `kind` of it\n", encoding="utf-8")
    assert anchors(page) == {"refs-and-what-may-cross", "the-kind-of-it"}
