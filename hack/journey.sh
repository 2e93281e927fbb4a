#!/usr/bin/env bash
# Runs the kill journey alone, with any seeds: FIRST=7 SEEDS=20 hack/journey.sh
# EVIDENCE=folder keeps what failed trips leave behind.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go run ./tests/cmd/prepare controlplane
hack/mongodb.sh || true # its seeds go to the other stores then; the run says so
exec go test -count=1 -v -timeout 240m ./tests/journey -run 'TestKillJourney$' \
	-args -seeds "${SEEDS:-13}" -first-seed "${FIRST:-1}" -evidence "${EVIDENCE:+$(realpath -m "$EVIDENCE")}"
