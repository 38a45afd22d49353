"""An extension of griffe, which reads the sources for the reference pages: libcni._dataclass is that of dataclasses."""

from __future__ import annotations

from typing import Any

import griffe


class Dataclasses(griffe.Extension):
    """Griffe knows a dataclass by its decorator's address, and shows its constructor."""

    def on_alias_instance(self, *, alias: griffe.Alias, **_: Any) -> None:
        if alias.target_path.startswith("libcni._dataclass."):
            alias.target_path = alias.target_path.replace("libcni._dataclass", "dataclasses")
