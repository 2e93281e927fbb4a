#!/usr/bin/env bash
# Regenerates what is generated, tidies the modules and formats the Go code, and fails with the
# names of the files that this changed. Your own changes do not count, and what was regenerated
# stays in the working tree. VERIFY=tidy,format verifies less.
set -euo pipefail
cd "$(dirname "$0")/.."
parts=${VERIFY:-tidy,format,generate}
index=$(mktemp)
trap 'rm -f "$index"' EXIT
# tree writes the working tree, with files that are not committed, as a tree of git.
tree() {
	cp "$(git rev-parse --git-path index)" "$index"
	GIT_INDEX_FILE=$index git add --all
	GIT_INDEX_FILE=$index git write-tree
}
status=0
# verify NAME FIX COMMAND...: runs the command, and lists what it changed.
verify() {
	local name=$1 fix=$2 before changed
	shift 2
	[[ ,$parts, == *,$name,* ]] || return 0
	echo "== verify: $name"
	before=$(tree)
	"$@"
	changed=$(git diff-tree -r --name-status "$before" "$(tree)")
	if [ -n "$changed" ]; then
		printf 'These files were not up to date. Run %s and commit them:\n%s\n' "$fix" "$changed" >&2
		git diff-tree -r --patch --unified=1 "$before" "$(tree)" | sed 81,\$d >&2
		status=1
	fi
}
tidy() {
	local module
	for module in . api csp-plugins; do
		go -C "$module" mod tidy
	done
	for module in hack/tools hack/actionlint hack/controlplane; do
		GOWORK=off go -C "$module" mod tidy
	done
}
verify tidy "go mod tidy in each module" tidy
verify format "make fmt" make -s fmt
verify generate "make generate" hack/generate.sh
exit $status
