"""Errors, grouped by what the caller should do about them.

* `UserError`: the user can mend it. Shown without a traceback. `Away` may mend itself; `Missing` names what is not
  there, `UpstreamMissing` what has to be built first; `Outdated` is mended by a restart.
* `Transient`: try again later; does not say anything about the data.
* `Fenced`: the work was taken over; drop it and never write again under this claim.
* `Conflict`: another process changed the same thing; read again and retry.
* `Overdrawn`: it may cost more than was reserved; reserve more and retry, or stop.
* `Unknown`: it is not known whether the effect happened; look it up before going on.
"""

from __future__ import annotations


class InstepError(Exception):
    """Base of every error that Instep raises on purpose."""


class UserError(InstepError):
    """Something the user can mend: says what, where and what to do next.

    `exit_code` is what the command line returns (2 is left to "changes are pending"), `state` what a run is then.
    """

    exit_code = 1
    state = "FAILED"

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.hint:
            # Both may end on one line: in a job's error, in a log.
            lines = [lines[0] if lines[0].endswith((".", "!", "?", "…")) else f"{lines[0]}.", self.hint]
        return "\n".join(lines)


class Interrupted(UserError):
    """A user's Ctrl-C, with what it means for the work."""

    exit_code = 130


class Away(UserError):
    """Ledger or target are out of reach (exit code 75, EX_TEMPFAIL: the same call may work later)."""

    exit_code = 75
    state = "AWAY"


class Outdated(UserError):
    """This process has older code or settings than what an index was built by."""

    state = "OUTDATED"


class Missing(UserError):
    """A job, a partition or something else that is not there."""


class UpstreamMissing(UserError):
    """A function of the project needs a partition (`Author`, `MergeRequest@42/9970`) that is not there: what it works
    on waits until that is built.
    """

    def __init__(self, name: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(
            f"{name} is needed, and not there", where=where, hint=hint or f"Build it first: instep run {name}"
        )
        self.name = name

    def __reduce__(self) -> tuple[type[UpstreamMissing], tuple[str]]:
        return type(self), (self.name,)


class Transient(InstepError):
    """An outage or a lost race: the same call may succeed later."""


class Fenced(InstepError):
    """The claim or lease was taken over; nothing may be written under it any more."""


class Conflict(InstepError):
    """Another process changed the data that this write was based on: read again, then retry."""


class Overdrawn(InstepError):
    """The next request may cost more than was reserved for the wave: reserve more, or stop."""


class Unknown(InstepError):
    """The outcome of an effect is not known; it must be looked up, never assumed."""
