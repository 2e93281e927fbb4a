#!/usr/bin/env bash
# Runs the kill journey alone, with any number of seeds: SEEDS=20 hack/journey.sh
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./tests/cmd/local-cluster build
exec go test -count=1 -v -timeout 120m ./tests/journey -run 'TestKillJourney' -args -seeds "${SEEDS:-10}"
