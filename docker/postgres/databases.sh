#!/bin/bash
# Makes Airflow's database and the one of the tables' catalog, each with an owner of its own. Runs once, at the first start.
set -euo pipefail

owned_database() {
  psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres -v owner="$1" -v password="$2" <<'SQL'
CREATE ROLE :"owner" LOGIN PASSWORD :'password';
CREATE DATABASE :"owner" OWNER :"owner";
SQL
}

owned_database airflow "$AIRFLOW_DB_PASSWORD"
owned_database catalog "$CATALOG_DB_PASSWORD"
