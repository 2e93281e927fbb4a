#!/usr/bin/env bash
# Runs every test of the workspace with the race detector, the longest package
# first, and prints the ten slowest at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
echo "== building the local control plane (once per machine)"
go run ./tests/cmd/local-cluster build
echo "== building the test tools"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOWORK=off go -C hack/tools build -o "$bin/gotestsum" gotest.tools/gotestsum
echo "== building the services, plain and with crash points"
hack/build.sh "$bin/services/plain"
hack/build.sh "$bin/services/crashpoints" -tags crashpoints
echo "== building helm (some minutes the first time)"
GOWORK=off go -C hack/tools/helm build -o "$bin/services/helm" helm.sh/helm/v4/cmd/helm
export NVSENTINEL_TEST_BIN=$bin/services
echo "== finding a MongoDB server"
note=""
hack/mongodb.sh || note="no MongoDB server could be installed: the tests on one were left out, and the kill journey's seeds on it ran on the other stores"
echo "== running the tests"
status=0
"$bin/gotestsum" --format pkgname-and-test-fails --format-hide-empty-pkg --jsonfile "$bin/tests.json" -- -race -timeout 40m ./tests/journey work || status=$?
echo "== the ten slowest tests"
"$bin/gotestsum" tool slowest --num 10 --jsonfile "$bin/tests.json" || true
[ -z "$note" ] || echo "== $note"
echo "== make test took $((SECONDS - started)) s"
exit $status
