"""The real plugins of Debian, driven by this library. Needs root."""
