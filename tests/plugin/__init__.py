"""libcni.plugin and libcni.testing: plugins written with the library, and what tests plugins."""
