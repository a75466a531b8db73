"""Check whether only this user controls files and folders, so that their contents can be trusted."""

from __future__ import annotations

import os

#: Permissions that other users must not have: any access, or write access.
ANY_ACCESS = 0o077
WRITING = 0o022


def access_problem(status: os.stat_result, forbidden: int) -> str | None:
    """Return the reason why other users may have changed or read a file or folder, or None if they cannot have.

    Parameters
    ----------
    status : os.stat_result
        Status of the file or folder.
    forbidden : int
        The permissions that neither the group nor others may have.
    """
    if status.st_uid != os.geteuid():
        return f"belongs to {_user_name(status.st_uid)}"
    if status.st_mode & forbidden:
        return f"is open to other users, with mode {status.st_mode & 0o777:03o}"
    return None


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
