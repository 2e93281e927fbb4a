#!/usr/bin/env bash
# Prints the suite's figures and their lower bounds: hack/bench.sh [--quick] [--only a,b] [--against DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh postgresql
# Its progress goes to stderr, the table to stdout.
exec env CGO_ENABLED=0 go run ./tests/cmd/bench "$@"
