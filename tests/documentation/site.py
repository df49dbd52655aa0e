"""Hook of mkdocs: READMEs of studies and the changelog are pages of the site, and links lead to them.

On the site a study has the place of its folder in the tree, so that only links out of docs/ change. A link to a file
that is no page keeps its words and loses its target.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_CHANGELOG = ROOT / "CHANGELOG.md"
_LINK = re.compile(
    r"(?<!`)(?P<image>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]"
    r"\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)"
)


def _published() -> dict[Path, str]:
    """Return the files outside docs/ that the site holds, each with its place there."""
    found = {_CHANGELOG: "release_notes.md"}
    for path in sorted((ROOT / "experiments").rglob("*")):
        if path.suffix == ".md" or (path.suffix in (".png", ".svg") and "library" in path.parts):
            found[path] = path.relative_to(ROOT).as_posix().replace("README.md", "index.md")
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add what lies outside docs/."""
    from mkdocs.structure.files import File, InclusionLevel  # the tests that collect this module do without mkdocs

    for path, place in _published().items():
        level = InclusionLevel.INCLUDED if path == _CHANGELOG else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place, abs_src_path=str(path), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the tree into links between pages of the site."""
    published, here = _published(), Path(page.file.abs_src_path)
    if here in published:
        page.meta["search"] = {"boost": 0.5}  # the documentation's own pages are found first

    def place_of(target: Path) -> str | None:
        if target in published:
            return published[target]
        inside = target.is_relative_to(ROOT / "docs") and target.exists()
        return target.relative_to(ROOT / "docs").as_posix() if inside else None

    def lead(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(here.parent / found["path"]))
        if target.is_dir() and (target / "README.md").exists():
            target = target / "README.md"
        place = place_of(target)
        if place is not None:
            path = os.path.relpath(place, Path(page.file.src_uri).parent)
            return f"{found['image']}[{found['words']}]({path}{found['anchor'] or ''})"
        return found["words"] if target.exists() else found[0]

    return _LINK.sub(lead, markdown)
