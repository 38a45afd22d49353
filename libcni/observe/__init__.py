"""Observers of verbs and plugin calls: the base class, and those for logs (``logs``) and OpenTelemetry (``otel``)."""
