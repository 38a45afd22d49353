"""One plugin call: the plugin's input and its output."""
