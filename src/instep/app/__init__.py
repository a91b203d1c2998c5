"""The Python API: `instep.load("instep.yaml")` gives an `Instep`; the command line calls the same."""

from instep.app.instep import Instep, load

__all__ = ["Instep", "load"]
