#!/bin/sh
# Gets what some tests want beside Python and Java: Postgres, and Chromium with its driver. With the word `images`: what
# the tests of the images want.
# As root on Debian it installs them; elsewhere it says what is missing. Tests that miss one are skipped, and listed at the end.
set -u
missing=
want() { command -v "$1" >/dev/null || missing="$missing $2"; }
{ command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || missing="$missing postgresql"
if [ "${1:-}" = images ]; then
  want buildah buildah
  want bwrap bubblewrap
  want debootstrap debootstrap
  want ip iproute2
else
  want chromium chromium
  want chromedriver chromium-driver
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Some tests will be skipped for want of:$missing (Debian: sudo apt-get install$missing)"
  exit 0
fi
echo "installing for the tests:$missing"
# Of Postgres the programs are enough: the machine's own server is neither made nor started.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1
for package in $missing; do
  apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || echo "$package can't be installed here: the tests that want it will be skipped"
done
