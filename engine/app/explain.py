"""The catalogue: a page for every code that refold prints, its errors, its findings and the rules that an import can
break. It must never be empty where the code is not: a test walks the code and looks every code up here.

The pages are Markdown files in ``data/pages``, one a family; a page is a heading of the second level that holds the
code, a sentence that says what it is, and four paragraphs: When, Why, Fix, Example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Final

from engine.core.errors import NotFound

__all__ = ["FAMILIES", "Family", "Page", "catalogue", "families", "page_of", "render"]

FAMILIES: Final = (
    "errors", "command-line", "findings", "task-rules", "graph-rules", "swarm-rules", "context-rules", "record-rules",
)  # fmt: skip
"""The files, in the order of the catalogue."""

PARTS: Final = ("When", "Why", "Fix", "Example")


@dataclass(frozen=True, slots=True)
class Page:
    """What ``refold explain CODE`` says about one code."""

    code: str
    family: str
    summary: str
    when: str
    why: str
    fix: str
    example: str

    def to_json(self) -> dict[str, Any]:
        """Return the page for ``--json``."""
        return {
            "code": self.code,
            "family": self.family,
            "summary": self.summary,
            "when": self.when,
            "why": self.why,
            "fix": self.fix,
            "example": self.example,
        }

    def to_markdown(self) -> str:
        """Return the page as it stands in the document."""
        parts = (self.when, self.why, self.fix, self.example)
        told = "\n\n".join(f"**{name}.** {text}" for name, text in zip(PARTS, parts, strict=True))
        return f"### `{self.code}`\n\n{self.summary}\n\n{told}"


@dataclass(frozen=True, slots=True)
class Family:
    """One file of the catalogue: its title, what all its codes have in common, and their pages."""

    title: str
    introduction: str
    pages: tuple[Page, ...]


def families() -> Iterator[Family]:
    """Yield the families in the order of the catalogue."""
    folder = files("engine.app") / "data" / "pages"
    for name in FAMILIES:
        yield _read((folder / f"{name}.md").read_text(encoding="utf-8"), name)


def catalogue() -> dict[str, Page]:
    """Return every page by its code, in the order of the catalogue."""
    made: dict[str, Page] = {}
    for family in families():
        for page in family.pages:
            assert page.code not in made, f"{page.code} has two pages"
            made[page.code] = page
    return made


def page_of(code: str) -> Page:
    """Return the page of a code. Raises NotFound, naming the codes that look like it."""
    pages = catalogue()
    if code in pages:
        return pages[code]
    near = get_close_matches(code, pages, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "'refold explain' lists every code"
    raise NotFound(f"there is no code {code!r:.60}", hint=hint, code=code)


def render() -> str:
    """Return the whole catalogue as one Markdown document."""
    parts = [
        """# Errors and findings

Every code that refold prints, with a page of its own. Generated from `engine/app/data/pages` by `make docs`; do not
edit it. On the command line: `refold explain CODE`.""",
    ]
    for family in families():
        listing = "\n".join(f"- [`{page.code}`](#{_anchor(page.code)}): {page.summary}" for page in family.pages)
        parts += [f"## {family.title}", family.introduction, listing]
        parts += [page.to_markdown() for page in family.pages]
    return "\n\n".join(parts) + "\n"


def _anchor(code: str) -> str:
    """Return the name that Markdown viewers give the heading of a code."""
    return re.sub(r"[^\w-]", "", code)


def _read(text: str, name: str) -> Family:
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, introduction = head.strip().partition("\n")
    pages = tuple(_page(section, name) for section in sections)
    return Family(title.removeprefix("# "), introduction.strip(), pages)


_PAGE: Final = re.compile(
    r"`(?P<code>[\w.-]+)`\n\n(?P<summary>.+?)\n\n"
    r"\*\*When\.\*\* (?P<when>.+?)\n\n\*\*Why\.\*\* (?P<why>.+?)\n\n"
    r"\*\*Fix\.\*\* (?P<fix>.+?)\n\n\*\*Example\.\*\* (?P<example>.+)",
    re.DOTALL,
)


def _page(section: str, family: str) -> Page:
    found = _PAGE.fullmatch(section.strip())
    assert found is not None, f"a page of {family} is not in order: {section[:60]!r}"
    return Page(family=family, **{name: " ".join(part.split()) for name, part in found.groupdict().items()})
