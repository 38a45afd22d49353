"""The package's long description and addresses: README.md, whose links lead to the repository if its address is known.

The address is one value in pyproject.toml, ``repository`` of this hook; the pages' site reads it there, too. On the
package index a relative link leads nowhere: without an address only the text of such a link remains.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#)[^)\s]+)\)")


class Addresses(MetadataHookInterface):
    """Set ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write both fields into the metadata."""
        repository = str(self.config.get("repository", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, repository)}
        metadata["urls"] = {"CNI specification": "https://www.cni.dev/docs/spec/", **addresses(repository)}


def addresses(repository: str) -> dict[str, str]:
    """Return the addresses of the project by their names on the package index."""
    if not repository:
        return {}
    paths = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
    return {name: repository + path for name, path in paths.items()}


def long_description(text: str, repository: str) -> str:
    """Return README.md for a reader who has no clone."""

    def changed(link: re.Match[str]) -> str:
        if not repository:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/main/{link['target']})"

    return _LINK.sub(changed, text)
