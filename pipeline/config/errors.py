"""The one exception for mistakes a user can mend."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: one sentence that says what is wrong, where, and what to do instead.

    Commands print it alone (no traceback) and exit with code 2.
    """


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """`; did you mean 'x'?` for the closest known name (with `prefix` before it), or the list of names when none is
    close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean '{prefix}{close[0]}'?" if close else f"; known: {', '.join(names)}"


def user_error_in(error: BaseException | None) -> UserError | None:
    """The user's mistake that a chain of exceptions began with, also across processes (`cause`), if there is one."""
    found = None
    while error is not None:
        if type(error) is UserError or (isinstance(error, UserError) and not hasattr(error, "cause")):
            found = error
        error = getattr(error, "cause", None) or error.__cause__
    return found
