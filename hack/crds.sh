#!/usr/bin/env bash
# Writes the deep copies, the CRDs and the reference page of all kinds of the module api from
# their Go types.
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
go build -C "$root/hack/tools" -o "$tool/crd-ref-docs" github.com/elastic/crd-ref-docs
page=$root/docs/reference/crds.md
"$tool/crd-ref-docs" --source-path=. --config="$root/hack/crds.yaml" --renderer=markdown --output-path="$tool/crds.md" --log-level=ERROR
{
	printf '# Custom resources\n\nWritten from the Go types of the module `api` by `make generate`. This page lists every field of the custom resources that you write or read.\n\n'
	sed '1,2d' "$tool/crds.md" | cat -s
} >"$page"
