"""The version of this distribution, in one place."""

__all__ = ["__version__"]

__version__ = "1.0.0rc2"
