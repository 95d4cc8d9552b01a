"""Tables in an Iceberg REST catalog: pyiceberg's own client, with what Stateferry asks of a server beyond it.

Who may ask the server, and which of its warehouses is meant, stands in pyiceberg's configuration of the catalog
`stateferry` (`PYICEBERG_CATALOG__STATEFERRY__CREDENTIAL`, or `.pyiceberg.yaml`), so no plan holds a secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog.rest import Endpoint, RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Namespace, Table, TableIdentifier
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.utils.config import Config

from flinkstate.errors import RefusedError, StateferryError, TransientError
from flinkstate.files.os_errors import LONGEST_REASON
from stateferry.tables.iceberg.races import racing

# Seconds to connect, and until bytes arrive.
_PATIENCE = (30, 120)
_COMMIT = "transactions/commit"
_VIEWS = "namespaces/{namespace}/views"
_VIEW = f"{_VIEWS}/{{view}}"
_WHAT_FOR = {
    f"POST /v1/{{prefix}}/{_COMMIT}": "by which the two tables of a state change together",
    f"GET /v1/{{prefix}}/{_VIEW}": "by which the view of the current rows is read",
    f"POST /v1/{{prefix}}/{_VIEWS}": "by which the view of the current rows is made",
    f"POST /v1/{{prefix}}/{_VIEW}": "by which the view of the current rows is replaced",
}
# pyiceberg makes of these what its callers expect; after the first 401 it gets a new token.
_ANSWERS = (404, 409, 419)
_UNAUTHORIZED = 401


def opened(name: str, address: str, properties: Mapping[str, str]) -> OwnRestCatalog:
    """The catalog at the address; refused if the server lacks what the tables need."""
    configured = {str(key): value for key, value in (Config().get_catalog_config(name) or {}).items()}
    given: dict[str, Any] = {**configured, **properties, "uri": address}
    try:
        catalog = OwnRestCatalog(name, **given)
    except RESTError as error:
        raise StateferryError(f"the REST catalog {address} can't be used: {_short(str(error))}") from error
    except ValidationError as error:
        raise StateferryError(f"{address} doesn't answer as a REST catalog of Iceberg does") from error
    for endpoint, what_for in _WHAT_FOR.items():
        if Endpoint.from_string(endpoint) not in catalog._supported_endpoints:
            raise RefusedError(
                f"the REST catalog {address} can't hold the tables: its configuration doesn't list {endpoint}, "
                f"{what_for}. Leave rest_catalog out, which keeps the tables in the SQL catalog"
            )
    return catalog


class OwnRestCatalog(RestCatalog):
    """pyiceberg's own; what goes wrong is said in our errors, and commits can be sent together."""

    _kept_back: list[CommitTableRequest] | None = None

    def _create_session(self) -> Any:
        session = super()._create_session()
        send, address, refused = session.send, self.properties["uri"], False

        def sent(request: Any, **settings: Any) -> Any:
            nonlocal refused
            settings["timeout"] = settings.get("timeout") or _PATIENCE
            try:
                response = send(request, **settings)
            except OSError as error:
                raise TransientError(f"the REST catalog {address} can't be reached: {_short(str(error))}") from error
            code, again = response.status_code, refused
            refused = code == _UNAUTHORIZED
            if code < 400 or code in _ANSWERS or (refused and not again):
                return response
            reason = f"{code} {_message(response)}"
            if code == 429 or (code >= 500 and code != 501):
                raise TransientError(f"the REST catalog {address} can't be reached: {reason}")
            asked = f"{request.method} {request.path_url}"
            raise StateferryError(f"the REST catalog {address} says no to {asked}: {reason}")

        session.send = sent  # type: ignore[method-assign]
        return session

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if self._kept_back is None:
            with racing(table):
                made: CommitTableResponse = super().commit_table(table, requirements, updates)
                return made
        identifier = TableIdentifier(namespace=Namespace(list(table.name()[:-1])), name=table.name()[-1])
        self._kept_back.append(CommitTableRequest(identifier=identifier, requirements=requirements, updates=updates))
        changed = update_table_metadata(table.metadata, updates)
        return CommitTableResponse.model_validate({"metadata": changed, "metadata-location": table.metadata_location})

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Sends the commits that are made meanwhile together at the end: the server makes all of them or none."""
        self._kept_back = []
        try:
            yield
            kept = [one.model_dump(mode="json", by_alias=True) for one in self._kept_back]
        finally:
            self._kept_back = None
        if kept and self._asked("POST", _COMMIT, {"table-changes": kept}) is None:
            raise TransientError("another writer has changed the tables meanwhile: try again")

    def view(self, identifier: tuple[str, ...]) -> dict[str, Any] | None:
        """The metadata of the view; None if there is none."""
        found = self._asked("GET", _VIEW, None, identifier)
        return None if found is None else dict(found["metadata"])

    def make_view(self, identifier: tuple[str, ...], location: str, schema: Any, version: Mapping[str, Any]) -> None:
        made = {"name": identifier[-1], "location": location, "schema": schema, "view-version": version}
        self._change_view("POST", _VIEWS, {**made, "properties": {}}, identifier)

    def replace_view(
        self, identifier: tuple[str, ...], before: Mapping[str, Any], schema: Any, version: Mapping[str, Any]
    ) -> None:
        known = [one["schema-id"] for one in before["schemas"] if one["fields"] == schema["fields"]]
        updates = [] if known else [{"action": "add-schema", "schema": schema}]
        # -1 is what was added last.
        updates += [
            {"action": "add-view-version", "view-version": {**version, "schema-id": known[0] if known else -1}},
            {"action": "set-current-view-version", "view-version-id": -1},
        ]
        requirements = [{"type": "assert-view-uuid", "uuid": before["view-uuid"]}]
        self._change_view("POST", _VIEW, {"requirements": requirements, "updates": updates}, identifier)

    def _change_view(self, method: str, path: str, content: Any, identifier: tuple[str, ...]) -> None:
        if self._asked(method, path, content, identifier) is None:
            raise TransientError(f"the view {'.'.join(identifier)} was changed by another writer: try again")

    def _asked(self, method: str, path: str, content: Any, identifier: tuple[str, ...] = ()) -> Any:
        """The server's answer, {} if it is empty; None if there is no such thing, or if another writer was first."""
        namespace, view = self._encode_namespace_path(identifier[:-1]), "".join(identifier[-1:])
        url = self.url(path.format(namespace=namespace, view=view))
        response = self._session.request(method, url, json=content)
        if response.status_code == _UNAUTHORIZED:
            self._refresh_token()
            response = self._session.request(method, url, json=content)
        if response.status_code in _ANSWERS:
            return None
        return response.json() if response.content else {}


def _message(response: Any) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return _short(response.json()["error"]["message"])
    return _short(response.text or response.reason)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."
