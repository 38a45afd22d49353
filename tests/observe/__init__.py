"""Observers: the protocol, the logging adapter and the OpenTelemetry adapter."""
