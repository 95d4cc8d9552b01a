"""Tells people of a run's events by the notifiers that are configured: mail, Slack, a webhook, or any other of Airflow.

A notifier is a class with arguments. Its templates may use `stateferry_text`, `stateferry_event`, `stateferry_job` and
`stateferry_url`, besides all that Airflow knows of the task.
"""

from __future__ import annotations

import inspect
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from stateferry.airflow.dag_runs.page_links import question_url
from stateferry.airflow.requests.jobs import Configuration, Event, Notice, configuration
from stateferry.basics.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

_TIMEOUT = 30.0
# These ask for an answer.
_QUESTIONS: tuple[Event, ...] = ("waiting", "reminder")
_log = logging.getLogger(__name__)


def tell(context: Context, event: Event, job: str, text: str) -> None:
    """Tells of the event whoever the configuration names. A notice that can't be sent is a warning in the log."""
    try:
        notices = configuration().notices_of(context["ti"].dag_id, job)
    except Exception:  # noqa: BLE001  # whatever is wrong with the configuration: the run is more important
        _log.warning("nobody is told of this, because the configuration can't be read", exc_info=True)
        return
    for one in notices:
        if event in one.events:
            _send(one, context, event, job, text)


@contextmanager
def telling_of_failure(context: Context, event: Event, job: str, what: str) -> Iterator[None]:
    """Tells of the error with which the task fails for good: one that no retry can help, or that of the last try."""
    try:
        yield
    except (AirflowRescheduleException, AirflowSkipException):
        raise
    except Exception as error:
        ti = context["ti"]
        if isinstance(error, AirflowFailException) or ti.try_number > ti.max_tries:
            tell(context, event, job, f"{what}: {error}")
        raise


def _send(one: Notice, context: Context, event: Event, job: str, text: str) -> None:
    try:
        values = {
            "stateferry_event": event,
            "stateferry_job": printable(job),
            "stateferry_text": printable(text),
            "stateferry_url": question_url(context["ti"]) if event in _QUESTIONS else str(context["ti"].log_url),
        }
        # A notifier changes the context that it gets.
        notifier_of(one)({**context, **values})
    except Exception:  # noqa: BLE001  # whatever the notifier is and raises: the run is more important
        _log.warning("%s could not send the notice %r", one.notifier, text, exc_info=True)
    else:
        _log.info("%s was told: %s", one.notifier, text)


def notifier_of(one: Notice) -> Callable[[Any], None]:
    """The notifier of the configuration."""
    made = _class_of(one)(**one.arguments)
    assert isinstance(made, BaseNotifier)
    return made


def notice_problems(found: Configuration) -> Iterator[str]:
    """What is wrong with the notifiers, as far as that is known before they are used."""
    for one in {id(one): one for job in found.jobs for one in (*found.notices, *job.notices)}.values():
        try:
            made = _class_of(one)
            inspect.signature(made).bind(**one.arguments)
        except (ImportError, AttributeError, TypeError) as error:
            yield f"notifier {one.notifier}: {error}"


def _class_of(one: Notice) -> type[BaseNotifier]:
    module, _, name = one.notifier.rpartition(".")
    found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise TypeError(f"{one.notifier} is no notifier: expected a subclass of airflow.sdk.BaseNotifier")
    return found


class Webhook(BaseNotifier):
    """Posts a JSON object to the address of an Airflow connection of type HTTP.

    The connection's password, if it has one, is sent as a bearer token. By default the object has `text`, which Slack,
    Mattermost and Teams take as well, and `event`, `job` and `url`.
    """

    template_fields: Sequence[str] = ("body",)

    def __init__(self, conn_id: str, endpoint: str = "", body: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.endpoint = endpoint
        self.body = body or {
            "text": "{{ stateferry_text }}",
            "event": "{{ stateferry_event }}",
            "job": "{{ stateferry_job }}",
            "url": "{{ stateferry_url }}",
        }

    def notify(self, context: Context) -> None:
        """Posts the body; any answer but success is an error."""
        connection = BaseHook.get_connection(self.conn_id)
        host = connection.host or ""
        address = host if "://" in host else f"{connection.schema or 'https'}://{host}"
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"connection {self.conn_id}: expected an address of http or https, found {address}")
        port = f":{connection.port}" if connection.port else ""
        headers = {"Content-Type": "application/json"}
        if connection.password:
            headers["Authorization"] = f"Bearer {connection.password}"
        data = json.dumps(self.body).encode()
        request = urllib.request.Request(f"{address}{port}{self.endpoint}", data, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            answer.read()
