#!/bin/sh
# Migrates one savepoint, from the first look to the publication: sh examples/migration.sh [FOLDER]
# The folder gets a demo savepoint, the new savepoint, and the home with runs, catalog and tables.
set -eu

folder=${1:-$(mktemp -d)}
export STATEFERRY_HOME="$folder/home"

# What a job leaves that keeps its data in a ValueState of a map, and has begun to move it to a MapState.
stateferry demo-savepoint "$folder/old" --keys 1000 --entries 10 --ttl 30d

# Which states there are, and whether a migration is worth it.
stateferry inspect "$folder/old"

# Snapshot, the new savepoint, validation and publication: a new job may start from $folder/new.
stateferry run --savepoint "$folder/old" --target "$folder/new" --operator main \
  --legacy-state mainState --new-state newMainState --flag-state isMigratedState --ttl 30d

# What was published, and some rows of the new state.
stateferry runs
stateferry dump "$folder/new" --operator main --state newMainState --limit 3
