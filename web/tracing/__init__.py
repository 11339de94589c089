"""Traces of requests over OpenTelemetry, where an endpoint is set."""
