"""Requests: wants, and the handlers that fulfil them."""
