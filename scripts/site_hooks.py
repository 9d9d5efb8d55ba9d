"""What MkDocs calls while it builds the site: pages from outside docs/, and links that leave it.

The front page is the README. A file elsewhere in the repository that a page links to becomes a page
of the site, so that no link needs the network. Each public module gets a page from its docstrings.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import tempfile
from pathlib import Path

import real_run  # scripts/ is on the path: mkdocs puts each hook's folder there
from api_page import MODULES
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FRONT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
AFTER_OTHERS = "---\nsearch:\n  boost: 0.3\n---\n"
"""For pages that a search should find after those that explain."""
ELSEWHERE = "repository/"
"""Where pages of other files of the repository stand in the site."""
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh"}
TEXT_BLOCK = re.compile(r"^```text\n.*?^```", re.DOTALL | re.MULTILINE)
RECORDED = """
## Its page and its timeline

Both are of the run that is explained above:

- [the page of `gpuprof html`](real-run/page.html)
- [the timeline](real-run/timeline.perfetto.gz); [Perfetto](https://ui.perfetto.dev) opens it
"""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
CELL = re.compile("<td.*?</td>", re.DOTALL)
TEXT = re.compile("(?<=>)[^<]+")
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img src="([^"]+)" alt="([^"]+)"[^>]*>\s*</picture>'
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for path, uri in FRONT.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    for module in MODULES:
        text = f"{AFTER_OTHERS}# `{module}`\n\n::: {module}\n"
        files.append(File.generated(config, f"api/{module}.md", content=text))
    for name, content in _recorded().items():
        files.append(File.generated(config, f"real-run/{name}", content=content))
    waiting = [each for each in files if each.src_uri.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.content_string):
            path = _target(_origin(page.src_uri), link)
            uri = path and _uri(path)
            if path and uri and uri.startswith(ELSEWHERE) and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, content=_as_page(path)))
                waiting.append(files.src_uris[uri])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, and let pictures follow the reader's choice of colours."""
    here = page.file.src_uri
    if here == real_run.PAGE.name:
        explanation = _recorded()["explain.txt"].decode()
        markdown = TEXT_BLOCK.sub(lambda _: f"```text\n{explanation}```", markdown) + RECORDED

    def moved(link: re.Match[str]) -> str:
        path = _target(_origin(here), link[0])
        return posixpath.relpath(_uri(path), posixpath.dirname(here)) if path else link[0]

    return LINK.sub(moved, PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say where words in tables may be broken: after commas, and on a phone inside names."""

    def breakable(text: re.Match[str]) -> str:
        at_commas = re.sub(r",(?=\S)", ",<wbr>", text[0])
        return re.sub(r"[_./=}-](?=[a-zA-Z{])", r'\g<0><wbr class="name">', at_commas)

    return CELL.sub(lambda cell: TEXT.sub(breakable, cell[0]), html)


@functools.cache
def _recorded() -> dict[str, bytes]:
    """The files of a run that is recorded for this site, by name."""
    with tempfile.TemporaryDirectory() as directory:
        real_run.record(Path(directory))
        return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def _origin(uri: str) -> str:
    """The file in the repository that a page of the site was made of."""
    for path, front in FRONT.items():
        if uri == front:
            return path
    if uri.startswith(ELSEWHERE):
        path = uri.removeprefix(ELSEWHERE)
        return path if (ROOT / path).exists() else path.removesuffix(".md")
    return f"docs/{uri}"


def _uri(path: str) -> str:
    """The page of the site for a file of the repository."""
    if path in FRONT:
        return FRONT[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return ELSEWHERE + (path if path.endswith(".md") else f"{path}.md")


def _target(origin: str, link: str) -> str | None:
    """The file that a link leads to; a folder's README stands for the folder."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    if os.path.isdir(ROOT / path):
        path = posixpath.join(path, "README.md")
    return path if os.path.isfile(ROOT / path) else None


def _as_page(path: str) -> str:
    text = (ROOT / path).read_text()
    if not path.endswith(".md"):
        text = f"# `{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"
    return AFTER_OTHERS + text
