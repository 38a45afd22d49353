"""The verbs, each a coroutine over a Node: they choose the next call and its input from the last plugin's answer."""
