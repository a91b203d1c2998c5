"""Columns of Arrow: hashes, keys, order, percent-encoding, sets, types, values and words of whole columns at once."""
