"""The verbs. Each is a coroutine over a Node, which runs plugins, locks, and reads and writes records."""
