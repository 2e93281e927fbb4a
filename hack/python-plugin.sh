#!/usr/bin/env bash
# Makes the Python environment of examples/python-plugin in the user's cache
# folder, once per machine, and prints the path of its interpreter. Where the
# package index is out of reach it says so and ends with 3.
set -euo pipefail
cd "$(dirname "$0")/../examples/python-plugin"
sum=$(sha256sum requirements.txt)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/nvsentinel/python-plugin-${sum:0:12}
if [ ! -e "$dir/complete" ]; then
	mkdir -p "$dir"
	exec 9>"$dir/lock"
	flock 9 # several test processes may come at once
	if [ ! -e "$dir/complete" ]; then
		if ! { python3 -m venv --clear "$dir/venv" && "$dir/venv/bin/pip" install -q --disable-pip-version-check -r requirements.txt; } >"$dir/log" 2>&1; then
			tail -n 5 "$dir/log" >&2
			echo "the packages of the Python example can not be installed" >&2
			exit 3
		fi
		touch "$dir/complete"
	fi
fi
echo "$dir/venv/bin/python"
