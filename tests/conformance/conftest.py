"""The Go program, for the tests that need it."""

from __future__ import annotations

from conformance.golang import go_program

__all__ = ["go_program"]
