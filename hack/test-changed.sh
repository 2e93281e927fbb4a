#!/usr/bin/env bash
# Runs the tests, except the long ones, of the packages that a change affects:
#   SINCE=origin/main SHARD=1/3 hack/test-changed.sh
# A change of go.mod, or of a package that most others import, affects nearly all. SHARD is the part
# that one of several machines runs. The tests build what they need, so this begins sooner than
# hack/test.sh, and takes longer if everything is affected.
set -euo pipefail
cd "$(dirname "$0")/.."
since=${SINCE:-origin/main}
CGO_ENABLED=0 go build -o bin/test/ ./tests/cmd/affected ./tests/cmd/run-tests
affected=$(bin/test/affected --since "$since" --shard "${SHARD:-}")
mapfile -t packages < <(printf '%s' "${affected:+$affected$'\n'}")
case ${SHARD:-1/1} in
1/*) # No module of the workspace, so one machine tests it.
	git diff --quiet --merge-base "$since" -- hack/tools || GOWORK=off go -C hack/tools test -count=1 ./images/... ./release/... ./licenses/...
	;;
esac
echo "== ${#packages[@]} packages are affected by the changes since $since${SHARD:+, in part $SHARD}"
[ ${#packages[@]} -gt 0 ] || exit 0
hack/mongodb.sh || true # the tests that need one are skipped then, with a message
exec bin/test/run-tests "${packages[@]}"
