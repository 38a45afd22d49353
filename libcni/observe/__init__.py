"""Watch what the library does: one protocol, and what puts it into logs (``logs``) and OpenTelemetry (``otel``)."""
