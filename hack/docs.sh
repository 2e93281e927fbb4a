#!/usr/bin/env bash
# Builds the documentation site into bin/site, and fails for a dead link, a missing anchor or
# a page that the navigation of mkdocs.yml lacks. Where the package index is out of reach, it
# reports that and ends with 3: hack/docs.sh [serve]
set -euo pipefail
cd "$(dirname "$0")/.."
version=9.8.2 # of mkdocs-material, which pins what it needs
dir=${XDG_CACHE_HOME:-$HOME/.cache}/nvsentinel/mkdocs-material-$version
if [ ! -x "$dir/bin/mkdocs" ]; then
	hack/packages.sh python3-venv
	mkdir -p "$(dirname "$dir")"
	echo "installing mkdocs-material $version into the cache folder"
	if ! { python3 -m venv --clear "$dir.new" && "$dir.new/bin/pip" install -q --disable-pip-version-check "mkdocs-material==$version"; } >"$dir.log" 2>&1; then
		tail -n 5 "$dir.log" >&2
		echo "mkdocs-material $version cannot be installed: the site is not built" >&2
		exit 3
	fi
	rm -rf "$dir" "$dir.log"
	mv "$dir.new" "$dir"
fi
# Scripts of a virtual environment name the folder in which it was made, so mkdocs runs as a module.
export NO_MKDOCS_2_WARNING=1
case "${1:-build}" in
serve) exec "$dir/bin/python" -m mkdocs serve ;;
build) exec "$dir/bin/python" -m mkdocs build --strict ;;
*) echo "usage: hack/docs.sh [serve]" >&2; exit 2 ;;
esac
