"""A project of notes."""

from __future__ import annotations

PROJECT = """\
name: notes
engine: inline
targets: {lance: {type: lance, uri: index}}
entities:
  Note:
    source: {type: files, path: docs}
"""
