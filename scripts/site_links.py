"""A hook of mkdocs: links of the pages to files of the repository that are no pages.

In a clone they are relative. On the site they lead to the repository if its address is known (``repo_url``); otherwise
the file's name stands there without a link.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with these links changed."""

    def changed(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["target"]))
        if target.startswith("docs/"):
            return link[0]
        return (
            f"[{link['text']}]({config.repo_url.rstrip('/')}/blob/main/{target})" if config.repo_url else link["text"]
        )

    return _LINK.sub(changed, markdown)
