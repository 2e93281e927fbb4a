#!/usr/bin/env bash
# Runs golangci-lint in every module named.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
echo "== building the linter (cached after the first time)"
GOWORK=off go -C hack/tools/lint build -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
status=0
for m in "$@"; do
	echo "== lint $m"
	(cd "$m" && "$bin/golangci-lint" run --config "$OLDPWD/.golangci.yml" ./...) || status=1
done
exit $status
