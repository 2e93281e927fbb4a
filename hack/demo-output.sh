#!/usr/bin/env bash
# Runs the demo, and writes its output into docs/get-started/demo-output.txt and a picture of
# its first repair into docs/images/demo.svg. It needs what make demo has prepared.
set -euo pipefail
cd "$(dirname "$0")/.."
out=docs/get-started/demo-output.txt
bin/demo --store sqlite | grep -vE '^local cluster:|^ *[0-9hms]+s  ' | tee "$out"
sed -n '/^Written into the kernel log/,/^\$ nvsentinel status/p' "$out" | sed -e '/^  step /,/^$/d' -e '$d' |
	go run ./tests/cmd/picture --title "make demo: a fault of a GPU node, from the kernel log to the repaired node" >docs/images/demo.svg
