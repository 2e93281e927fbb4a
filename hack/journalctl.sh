#!/usr/bin/env bash
# Copies systemd's journalctl of this machine into a folder, with everything it
# loads, so that it runs in an image that has nothing else:
#   hack/journalctl.sh <folder>
# The packers are named because newer versions load them only when they meet one.
set -euo pipefail
into=${1:?usage: hack/journalctl.sh <folder>}
tool=$(command -v journalctl) || { echo "journalctl is missing: install systemd" >&2; exit 2; }
loaded() { ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'; }
packer() { # the name that programs load it by, and where it is
	PATH=$PATH:/usr/sbin:/sbin ldconfig -p | awk -v name="$1" -v arch="$(uname -m | tr _ -)" '$1 == name && index(tolower($0), arch) && !found++ {print $NF}' # reads to the end: pipefail
}
files=("$tool")
for name in libzstd.so.1 liblz4.so.1 liblzma.so.5 libgcrypt.so.20; do
	path=$(packer "$name")
	[ -n "$path" ] || { [ "$name" = libgcrypt.so.20 ] && continue; echo "$name is missing" >&2; exit 2; }
	files+=("$path")
done
mapfile -t all < <({ printf '%s\n' "${files[@]}"; for f in "${files[@]}"; do loaded "$f"; done; } | sort -u)
for f in "${all[@]}"; do
	install -D -m 0755 "$f" "$into$f"
done
