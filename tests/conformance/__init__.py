"""The conformance suite: vectors in testdata/, and what executes them here and with Go's library."""
