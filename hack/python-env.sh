#!/usr/bin/env bash
# Makes a Python environment in the user's cache folder, once per machine, and
# prints the folder of its programs: hack/python-env.sh NAME PIP-ARGUMENT...
# Where the package index is out of reach, it prints an error and ends with 3.
set -euo pipefail
name=$1
shift
# What is asked for, and what is in the files that it names.
sum=$({ echo "$*"; for file in "$@"; do [ ! -f "$file" ] || cat "$file"; done; } | sha256sum)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/nvsentinel/$name-${sum:0:12}
if [ ! -e "$dir/complete" ]; then
	mkdir -p "$dir"
	exec 9>"$dir/lock"
	flock 9 # several test processes may come at once
	if [ ! -e "$dir/complete" ]; then
		if ! { python3 -m venv --clear "$dir/venv" && "$dir/venv/bin/pip" install -q --disable-pip-version-check "$@"; } >"$dir/log" 2>&1; then
			tail -n 5 "$dir/log" >&2
			echo "the Python packages of $name can not be installed" >&2
			exit 3
		fi
		touch "$dir/complete"
	fi
fi
echo "$dir/venv/bin"
