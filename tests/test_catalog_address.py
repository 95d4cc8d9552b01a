"""The password of the catalog: it is used from the environment, and is in no plan and in no message."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from flinkstate.errors import PlanError
from stateferry.basics import catalog_address, databases
from stateferry.runs.catalog.control_tables import engine_for
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.tables.iceberg.commits import TableHome
from tests.runs.test_plan import VALUES

SECRET = "s3cret"
ADDRESSES = {
    f"postgresql://me:{SECRET}@db/catalog": "postgresql://me@db/catalog",
    f"postgresql+psycopg://me:{SECRET}@db:5432/catalog?sslmode=require": "postgresql+psycopg://me@db:5432/catalog?sslmode=require",
    f"postgresql://me@db/catalog?password={SECRET}": "postgresql://me@db/catalog",
    f"postgresql://me@db/catalog?password={SECRET}&sslmode=require": "postgresql://me@db/catalog?sslmode=require",
    f"postgresql://me@db/catalog?sslmode=require&sslpassword={SECRET}": "postgresql://me@db/catalog?sslmode=require",
    f"postgresql://me:{SECRET}%40/?x@db/catalog": "postgresql://me@db/catalog",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_password_of_the_environment_is_used_and_never_stored(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(catalog_address.VARIABLE, address)
    plan = plan_of({**VALUES, "home": str(tmp_path)})
    assert plan.catalog_uri == ADDRESSES[address]
    monkeypatch.setattr("stateferry.runs.record.runs.check_catalog", lambda _: None)
    run = Run.create(plan, 1)
    kept = [file for file in run.folder.listed(recursive=True) if not file.is_folder]
    assert kept
    assert not [file.location.shown for file in kept if SECRET.encode() in file.location.read()]
    wanted = databases.noticing_silence(make_url(address))
    engine = engine_for(plan.catalog_uri)
    assert engine.url == wanted
    assert TableHome(plan.catalog_uri, str(tmp_path))._properties["uri"] == wanted.render_as_string(hide_password=False)
    assert SECRET not in databases.shown(engine.url) + databases.shown(address) + catalog_address.hidden(address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_plan_with_a_password_is_refused(address: str) -> None:
    with pytest.raises(
        PlanError, match=r"^the plan: catalog_uri: .* has a password, which would be in the file"
    ) as caught:
        plan_of({**VALUES, "catalog_uri": address})
    assert SECRET not in str(caught.value)


def test_a_run_goes_on_with_the_password_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = plan_of({**VALUES, "catalog_uri": "postgresql://me@db/catalog"})
    monkeypatch.setenv(catalog_address.VARIABLE, f"postgresql://me:{SECRET}@db/catalog")
    assert stored.is_asked_for_again_by(plan_of({**VALUES, "home": stored.home}))
    assert engine_for(stored.catalog_uri).url.password == SECRET
    other = "postgresql://me@elsewhere/catalog"
    assert catalog_address.to_connect(other) == other
