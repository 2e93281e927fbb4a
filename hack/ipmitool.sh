#!/usr/bin/env bash
# Copies ipmitool of this machine into a folder, with everything it loads, so that
# it runs in an image that has nothing else:
#   hack/ipmitool.sh <folder>
set -euo pipefail
into=${1:?usage: hack/ipmitool.sh <folder>}
tool=$(command -v ipmitool) || { echo "ipmitool is missing: apt-get install ipmitool" >&2; exit 2; }
mapfile -t all < <({ echo "$tool"; ldd "$tool" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'; } | sort -u)
for f in "${all[@]}"; do
	install -D -m 0755 "$f" "$into$f"
done
