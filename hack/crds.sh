#!/usr/bin/env bash
# Writes the deep copies and the CRDs of a module's kinds from their Go types:
# hack/crds.sh [module [folder of the chart]], without them the janitor's into crds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
export GOWORK=off
go build -C "$root/hack/tools" -o "$tool/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
cd "$root/${1:-janitor}"
"$tool/controller-gen" object paths=./api/... crd paths=./api/... \
  output:crd:dir="$root/distros/helm/nvsentinel/${2:-crds}"
