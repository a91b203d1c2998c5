"""The rules of Instep: pure functions and frozen values. No I/O, no clock, no Spark."""
