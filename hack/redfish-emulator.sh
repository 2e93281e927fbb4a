#!/usr/bin/env bash
# Makes the Python environment of sushy-tools, whose emulator of a BMC the tests
# of csp-plugins/redfish run, in the user's cache folder, once per machine, and
# prints the folder of its programs. Where the package index is out of reach it
# says so and ends with 3.
set -euo pipefail
packages=(sushy-tools==2.2.0 bcrypt==5.0.0)
sum=$(sha256sum <<<"${packages[*]}")
dir=${XDG_CACHE_HOME:-$HOME/.cache}/nvsentinel/sushy-tools-${sum:0:12}
if [ ! -e "$dir/complete" ]; then
	mkdir -p "$dir"
	exec 9>"$dir/lock"
	flock 9 # several test processes may come at once
	if [ ! -e "$dir/complete" ]; then
		if ! { python3 -m venv --clear "$dir/venv" && "$dir/venv/bin/pip" install -q --disable-pip-version-check "${packages[@]}"; } >"$dir/log" 2>&1; then
			tail -n 5 "$dir/log" >&2
			echo "${packages[*]} can not be installed: the tests with that emulator are left out" >&2
			exit 3
		fi
		touch "$dir/complete"
	fi
fi
echo "$dir/venv/bin"
