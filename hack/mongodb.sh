#!/usr/bin/env bash
# Makes the Python environment of SecantusDB, the server that stands in for
# MongoDB in tests and demos, in the user's cache folder, once per machine. Where
# the package index is out of reach, it prints an error and ends with 3.
set -euo pipefail
version=0.7.0b3 # as in store-client/mongotest
dir=${XDG_CACHE_HOME:-$HOME/.cache}/nvsentinel/secantusdb-$version
[ -n "${NVSENTINEL_TEST_MONGODB_URI:-}" ] && exit 0
[ -x "$dir/bin/secantusd-py" ] && exit 0
mkdir -p "$(dirname "$dir")"
new=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$new"' EXIT
echo "installing SecantusDB $version into the cache folder"
if ! { python3 -m venv "$new" && "$new/bin/pip" install -q --disable-pip-version-check "SecantusDB==$version"; } >"$new.log" 2>&1; then
	tail -n 5 "$new.log" >&2
	rm -f "$new.log"
	echo "SecantusDB $version can not be installed: the tests on a MongoDB server are left out" >&2
	exit 3
fi
rm -f "$new.log"
# Scripts of the environment name its path, so it is made again at its place.
rm -rf "$dir"
mv "$new" "$dir"
sed -i "1s|$new|$dir|" "$dir"/bin/* 2>/dev/null || true
