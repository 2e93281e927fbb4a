#!/usr/bin/env bash
# Checks the workflows below .github with actionlint, and that each action is pinned to a commit.
set -euo pipefail
cd "$(dirname "$0")/.."
# A module of its own: a linter in hack/tools needs a newer release candidate of the YAML library,
# with which actionlint does not compile.
GOWORK=off CGO_ENABLED=0 go -C hack/actionlint build -o "$PWD/bin/tools/actionlint" github.com/rhysd/actionlint/cmd/actionlint
bin/tools/actionlint -color
if grep -rnE '^ *-? *uses: ' .github/workflows .github/actions | grep -vE 'uses: (\./|[^@ ]+@[0-9a-f]{40} # v[0-9.]+$)'; then
	echo "workflows: the lines above name no commit with its version in a comment" >&2
	exit 1
fi
echo "the workflows are valid"
