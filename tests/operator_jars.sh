#!/bin/sh
# Makes the jars for the tests under the Flink Kubernetes Operator of its source: operator_jars.sh VERSION SOURCE FOLDER.
# SOURCE is a clone that has the tag release-VERSION, or an unpacked source release; nothing is written there. Maven
# fetches what it needs from where its own settings say.
set -eu
version=$1 source=$2
command -v mvn >/dev/null || { echo "mvn is missing, which compiles the operator (Debian: maven)." >&2; exit 1; }
mkdir -p "$3"
folder=$(cd "$3" && pwd)
scratch=$(mktemp -d "$folder/../build-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
if git -C "$source" rev-parse -q --verify "release-$version^{commit}" >/dev/null 2>&1; then
  git -C "$source" archive "release-$version" | tar -x -C "$scratch"
else
  (cd "$source" && tar -c --exclude=target --exclude=.git .) | tar -x -C "$scratch"
fi
found=$(sed -n 's/^    <version>\(.*\)<\/version>$/\1/p' "$scratch/pom.xml" | head -1)
[ "$found" = "$version" ] || { echo "$source is of version '$found', not $version, and has no tag release-$version." >&2; exit 1; }
# As its Dockerfile does, without its own checks. One of them, by ant, compares its CRDs with older ones, from GitHub.
(cd "$scratch" && mvn -ntp -B -q package -pl flink-kubernetes-operator -am -DskipTests -Dfabric8.httpclient.impl=okhttp \
  -Dcheckstyle.skip -Dspotless.check.skip -Drat.skip -Dexec.skip -Dmaven.antrun.skip=true -Dmaven.javadoc.skip)
cd "$scratch"
rm -f "$folder"/*.jar
cp "flink-kubernetes-standalone/target/flink-kubernetes-standalone-$version.jar" "$folder"
# Operators before 1.15 have in their own jar what binds slf4j.
[ ! -d flink-kubernetes-operator/target/log4j ] || cp flink-kubernetes-operator/target/log4j/*.jar "$folder"
# Last: without it, no test begins.
cp "flink-kubernetes-operator/target/flink-kubernetes-operator-$version-shaded.jar" "$folder"
