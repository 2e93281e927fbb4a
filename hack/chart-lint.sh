#!/usr/bin/env bash
# Lints the chart with its default values and with each stage, and packages it.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=distros/helm/nvsentinel
# With the flags of tests/programs, so that what the tests compiled is used.
GOWORK=off CGO_ENABLED=0 go -C hack/tools build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w" -tags=grpcnotrace -o "$PWD/bin/tools/" helm.sh/helm/v4/cmd/helm
lint() { bin/tools/helm lint --strict $chart --set store.secretName=nvsentinel-store,cspPluginAws.enabled=true "$@"; }
lint
for stage in "$chart"/stages/*.yaml; do
	lint --values "$stage"
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bin/tools/helm package $chart --destination "$out"
