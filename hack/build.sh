#!/usr/bin/env bash
# Builds every service and the command line into the folder given: hack/build.sh bin [go build flags]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
CGO_ENABLED=0 go build "$@" -o "$out/" \
	./platform-connectors ./health-monitors/syslog-health-monitor ./health-monitors/kubernetes-object-monitor ./fault-quarantine ./node-drainer \
	./fault-remediation ./health-events-analyzer ./event-exporter ./janitor ./csp-plugins/aws ./csp-plugins/kwok ./cli/nvsentinel
