"""What `OLD=NEW` says of files that were moved: folders may have equals signs and commas in their names."""

from __future__ import annotations

import pytest

from stateferry.errors import UsageError
from stateferry.savepoint.moved_files import root_of

ROOTS = {
    "/old=/new": ("/old", "/new"),
    "/old=new/folder": ("/old", "new/folder"),
    "/env=prod/day=1=/backup/env=prod": ("/env=prod/day=1", "/backup/env=prod"),
    "s3://bucket/env=prod=file:///backup/a=b": ("s3://bucket/env=prod", "file:///backup/a=b"),
    "file:/a&b=c=s3a://other/d": ("file:/a&b=c", "s3a://other/d"),
}


@pytest.mark.parametrize("text", ROOTS)
def test_new_begins_where_an_address_does(text: str) -> None:
    assert root_of(text, "--files-from") == ROOTS[text]


@pytest.mark.parametrize("text", ["/new", "=/new", "/old=", "/a=b=c", "/a=/b=/c"])
def test_what_has_no_two_parts_or_more_than_one_meaning_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"option --files-from: expected OLD=NEW, two absolute paths or URIs"):
        root_of(text, "--files-from")
