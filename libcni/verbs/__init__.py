"""The verbs. Each is a coroutine over a VerbRun, which runs plugins, locks, and reads and writes records."""
