"""Shows the examples in docstrings as code. To Markdown, `>>>` is a quotation in a quotation in a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(Extension):  # type: ignore[misc]
    """Puts each paragraph that begins with `>>>` into a block of code, before the page is made."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
