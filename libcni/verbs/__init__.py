"""The verbs: what runs next, with which input, given what the last plugin answered. Each is a coroutine over a Node."""
