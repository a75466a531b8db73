"""Whether files and folders belong to this user alone, so that what they hold can be trusted as the user's own."""

from __future__ import annotations

import os

#: Permissions that other users must not have: any, or to write.
ANY_ACCESS = 0o077
WRITING = 0o022


def why_foreign(found: os.stat_result, forbidden: int) -> str | None:
    """Return why other users may have changed or read a file or folder, or None if they cannot have.

    Parameters
    ----------
    found : os.stat_result
        Of the file or folder.
    forbidden : int
        The permissions that neither its group nor others may have.
    """
    if found.st_uid != os.geteuid():
        return f"belongs to {_user_name(found.st_uid)}"
    if found.st_mode & forbidden:
        return f"is open to other users, with mode {found.st_mode & 0o777:03o}"
    return None


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
