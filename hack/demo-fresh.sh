#!/usr/bin/env bash
# Runs make demo as on a machine that has downloaded no Go module yet: with an empty
# module cache, filled from the one that is there. It fails if anything is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
GOPROXY=file://$(go env GOMODCACHE)/cache/download
GOMODCACHE=$(mktemp -d)
export GOPROXY GOMODCACHE GOSUMDB=off
log=$(mktemp)
trap 'go clean -modcache; rm -rf "$GOMODCACHE" "$log"' EXIT
make demo | tee "$log"
if grep 'Skipping the fault' "$log"; then
	echo "demo-fresh: the demo left something out" >&2
	exit 1
fi
