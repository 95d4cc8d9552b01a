"""The passwords of Airflow's simple login, in a file that only this user reads.

Airflow would make them itself, in a file that everybody may read, and print them into its log.
"""

from __future__ import annotations

import json
import os
import secrets

from local_airflow.settings import USERS, Settings

_OWNER_ONLY = 0o600


def write_passwords(settings: Settings) -> None:
    """Gives each user without a password a new one."""
    file = settings.passwords
    if file.exists():
        file.chmod(_OWNER_ONLY)
    known = json.loads(file.read_text()) if file.exists() and file.stat().st_size else {}
    users = [user.partition(":")[0] for user in settings.environment()[USERS].split(",")]
    passwords = {**{user: secrets.token_urlsafe(12) for user in users}, **known}
    if passwords != known:
        draft = file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as out:
            out.write(f"{json.dumps(passwords)}\n")
        draft.rename(file)
