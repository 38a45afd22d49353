"""The commands, one file each. A command gets a Session and uses only the public API of libcni."""
