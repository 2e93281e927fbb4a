#!/usr/bin/env bash
# Runs golangci-lint in every module named.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin/lint
# As the services are built (tests/programs), so that the linter finds compiled what they need.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath -gcflags=all=-dwarf=false -tags=grpcnotrace" GOGC=${GOGC:-200}
echo "== building the linter (some minutes the first time)"
GOWORK=off go -C hack/tools build -ldflags "-s -w" -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
echo "== lint $*"
"$bin/golangci-lint" run --allow-serial-runners --config .golangci.yml "${@/%//...}"
echo "== lint hack/tools, which is no module of the workspace"
cd hack/tools && GOWORK=off "$bin/golangci-lint" run --allow-serial-runners --config ../../.golangci.yml ./images/... ./release/... ./licenses/...
