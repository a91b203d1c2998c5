"""Columns of Arrow: hashes, keys, percent-encoding, sets, types, values and words of whole columns at once."""
