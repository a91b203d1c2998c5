"""Contract suites: how every implementation of a port must behave."""
