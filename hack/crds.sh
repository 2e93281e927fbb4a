#!/usr/bin/env bash
# Writes the deep copies and the CRDs of all kinds of the module api from their Go types.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
export GOWORK=off
go build -C "$root/hack/tools" -o "$tool/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
cd "$root/api"
"$tool/controller-gen" object paths=./...
chart=$root/distros/helm/nvsentinel
"$tool/controller-gen" crd paths=./janitor/... paths=./repairchain/... output:crd:dir="$chart/crds"
"$tool/controller-gen" crd paths=./nodehealthcheck/... paths=./healthevent/... output:crd:dir="$chart/manifests/crds"
