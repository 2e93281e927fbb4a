#!/usr/bin/env bash
# Prints the suite's figures beside their floors: hack/bench.sh [--quick] [--only a,b] [--against DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh postgresql
# What it says on the way goes to stderr, the table to stdout.
exec env CGO_ENABLED=0 go run ./tests/cmd/bench "$@"
