#!/usr/bin/env bash
# Regenerates generated code. protoc itself and its well-known types come from Debian's
# protobuf-compiler and libprotobuf-dev; the plugins are pinned in hack/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh protobuf-compiler libprotobuf-dev
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for tool in google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc; do
	GOWORK=off go -C hack/tools build -o "$bin/" "$tool"
done
export PATH=$bin:$PATH
protoc -I data-models/protobufs --go_out=api/protos --go_opt=paths=source_relative \
	--go-grpc_out=api/protos --go-grpc_opt=paths=source_relative health_event.proto
protoc -I janitor/protos/v1 --go_out=api/csp/v1 --go_opt=paths=source_relative \
	--go-grpc_out=api/csp/v1 --go-grpc_opt=paths=source_relative csp_plugin.proto
protoc -I platform-connectors/internal/protos --go_out=platform-connectors/internal/protos --go_opt=paths=source_relative \
	--go-grpc_out=platform-connectors/internal/protos --go-grpc_opt=paths=source_relative gateway.proto
hack/crds.sh
go generate ./...
hack/chart.sh
# The pages of docs/reference/configuration and of the metrics, each by the test that compares it: what several
# programs share first, one section of shared.md after the other, and the index last.
mapfile -t blocks < <(git grep --untracked -lE 'reference\.Block\(' -- '*page_test.go' | xargs -n1 dirname | sed 's#^#./#')
NVSENTINEL_WRITE_PAGES=1 go test -p 1 -count=1 -run '^TestConfigurationBlock$' "${blocks[@]}"
mapfile -t pages < <(git grep --untracked -lE 'reference\.Page\(' -- '*page_test.go' | xargs -n1 dirname | sed 's#^#./#')
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestConfigurationPage$' "${pages[@]}"
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestConfigurationIndex$' ./internal/daemon
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestMetricsPage$' ./tests/metrics
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestComingFromPage$' ./cli/convert
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^(TestDefaultsForNulls|TestReadme)$' ./tests/chart
go test -count=1 -run '^TestDrawingIsCurrent$' ./data-models/record -args -rewrite
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestReasonsPage$' ./tests/reasons
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestNames$' ./tests/names
NVSENTINEL_WRITE_PAGES=1 go test -count=1 -run '^TestSummaryForLanguageModels$' ./tests/repository
