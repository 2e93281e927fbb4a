#!/usr/bin/env bash
# Counts how the pages are written, beside the targets of docs/contributing/style.md:
# hack/prose.sh [<folder of other pages>]
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./tests/cmd/prose --docs "${1:-docs}"
