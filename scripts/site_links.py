"""A hook of mkdocs: links of the pages to files of the repository that are no pages, and names of the reference.

``::: MODULE.*`` stands for the public names of a module that the page does not name itself.

In a clone the links are relative. On the site they lead to the repository if pyproject.toml has its address; otherwise
the file's name stands there without a link.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^::: (\S+)$", re.MULTILINE)
_REST = re.compile(r"^::: (?P<module>[\w.]+)\.\*$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)\)")


def on_config(config: Any) -> Any:
    """Set the repository's address, which also makes a link at the top of each page."""
    project = tomllib.loads((Path(config.config_file_path).parent / "pyproject.toml").read_text(encoding="utf-8"))
    config.repo_url = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with these links changed, and with the names."""

    def changed(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["target"]))
        if target.startswith("docs/"):
            return link[0]
        return (
            f"[{link['text']}]({config.repo_url.rstrip('/')}/blob/main/{target})" if config.repo_url else link["text"]
        )

    return _LINK.sub(changed, _with_names(markdown))


def _with_names(markdown: str) -> str:
    named = {name.rpartition(".")[2] for name in _NAME.findall(markdown)}

    def rest(found: re.Match[str]) -> str:
        module = found["module"]
        return "\n\n".join(f"::: {module}.{name}" for name in import_module(module).__all__ if name not in named)

    return _REST.sub(rest, markdown)
