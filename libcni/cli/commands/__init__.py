"""One file per command. Each gets a Session, and uses the public API of libcni."""
