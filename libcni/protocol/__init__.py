"""One plugin call: what the plugin receives and what it answers."""
