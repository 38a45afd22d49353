"""libcni.manager: a container's networks as one thing, on plugins of shell and on real ones."""
