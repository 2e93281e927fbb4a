#!/usr/bin/env bash
# Runs the tests of the workspace with the race detector: hack/test.sh [-long]
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
echo "The tests take up to fifteen minutes on two cores. A machine's first run compiles Kubernetes, Helm and the"
echo "services before, and everything with the race detector: up to half an hour more."
echo "== building what the tests run"
CGO_ENABLED=0 go run ./tests/cmd/prepare test bin/test
CGO_ENABLED=0 go build -o bin/test/ ./tests/cmd/run-tests
echo "== testing what makes the images, which is no module of the workspace"
GOWORK=off go -C hack/tools test -count=1 ./images/... ./release/... ./licenses/...
echo "== finding a MongoDB server"
hack/mongodb.sh || true # the tests that need one are skipped then, with a message
echo "== running the tests, after $((SECONDS - started)) s of building"
NVSENTINEL_TEST_BIN=$PWD/bin/test exec bin/test/run-tests "$@"
