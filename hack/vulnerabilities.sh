#!/usr/bin/env bash
# Searches the Go vulnerability database for functions that the code of the named modules calls.
# It needs a connection to vuln.go.dev: hack/vulnerabilities.sh ./ ./api/
set -euo pipefail
cd "$(dirname "$0")/.."
GOWORK=off CGO_ENABLED=0 go -C hack/tools build -o "$PWD/bin/tools/govulncheck" golang.org/x/vuln/cmd/govulncheck
status=0
for module in "$@"; do
	echo "== vulnerabilities of $module"
	(cd "$module" && CGO_ENABLED=0 "$OLDPWD/bin/tools/govulncheck" ./...) || status=1
done
exit $status
