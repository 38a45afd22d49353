"""The Go program, for the tests that need it."""

from __future__ import annotations

from conformance.golang import each_go_program, go_program, newest_go_program

__all__ = ["each_go_program", "go_program", "newest_go_program"]
