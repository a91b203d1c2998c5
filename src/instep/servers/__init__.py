"""Addresses and errors of servers, as databases and message buses have them."""
