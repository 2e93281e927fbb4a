#!/usr/bin/env bash
# Runs the chaos test for long, with outages of minutes, on all stores:
# DURATION=60m EVIDENCE=soak-evidence hack/soak.sh
# FIRST=7 begins with that seed, and not with ones that nobody has run before;
# SEED=7 runs one seed of a soak again.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go run ./tests/cmd/prepare controlplane
hack/mongodb.sh || true # its seeds go to the other stores then, which the run prints
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/soak" ./tests/cmd/soak
"$bin/soak" --duration "${DURATION:-60m}" --first "${FIRST:-0}" --seed "${SEED:-0}" --evidence "${EVIDENCE:-soak-evidence}"
