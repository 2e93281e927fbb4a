#!/usr/bin/env bash
# Prints the figures of a checked-out tree (lines, packages, modules, programs, keys) as Markdown:
# hack/figures.sh [--root FOLDER] [--binaries FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go -C "$here" build -o "$bin/figures" ./tests/cmd/figures
"$bin/figures" --root "$here" "$@"
