"""Errors that a user can mend."""


class UserError(ValueError):
    """A mistake of the user's, told in one line.

    The message names the flag or argument, the file and row where there is
    one, the value received and what would do. The commands in `tools/` print
    it without a stack trace and exit with code 1.
    """
