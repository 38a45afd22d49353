"""Observers of verbs and plugin calls: the base class, one for logging (``logs``), one for OpenTelemetry (``otel``)."""
