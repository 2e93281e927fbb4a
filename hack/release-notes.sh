#!/usr/bin/env bash
# Prints the changes of a version from CHANGELOG.md: hack/release-notes.sh 1.2.3
# Exit status: 0 printed, 2 the version has no section or an empty one.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: hack/release-notes.sh <version>}
notes=$(awk -v version="$version" '/^## \[/ {in_section = index($0, "## [" version "]") == 1; next} in_section' CHANGELOG.md | sed -e '/./,$!d')
if [ -z "$notes" ]; then
	echo "release-notes: CHANGELOG.md has no section ## [$version]: rename Unreleased to it and add a new Unreleased" >&2
	exit 2
fi
printf '%s\n' "$notes"
