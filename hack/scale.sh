#!/usr/bin/env bash
# Prints what the suite takes at several numbers of nodes: hack/scale.sh [--nodes 1000,3000] [--only gateways] ...
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh postgresql
# Its progress goes to stderr, the table to stdout.
exec env CGO_ENABLED=0 go run ./tests/cmd/scale "$@"
