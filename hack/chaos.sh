#!/usr/bin/env bash
# Runs the chaos test alone, with any seeds: FIRST=7 SEEDS=20 hack/chaos.sh
# EVIDENCE=folder keeps the files of failed runs.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go run ./tests/cmd/prepare controlplane
hack/mongodb.sh || true # its seeds go to the other stores then, which the run prints
exec go test -count=1 -v -timeout 240m ./tests/journey -run 'TestKillJourney$' \
	-args -seeds "${SEEDS:-13}" -first-seed "${FIRST:-1}" -evidence "${EVIDENCE:+$(realpath -m "$EVIDENCE")}"
