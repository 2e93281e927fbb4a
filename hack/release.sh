#!/usr/bin/env bash
# Publishes a release: the images and the chart to a registry, and below bin/release the files
# of the release page: the chart, the command line for each platform, the krew manifest, the
# lists of contents, the digests and the checksums.
#   VERSION=1.2.3 REGISTRY=ghcr.io/nvidia/nvsentinel hack/release.sh
#   DRY_RUN=1 hack/release.sh
# The dry run publishes to a registry of this machine, and verifies the result: digests, documents,
# the chart, and that the registry has each image that the chart names. KEEP=1 keeps the registry
# running until Ctrl-C, so that you can install from it, and LISTEN=<address> sets where it listens.
# PLATFORMS and ONLY make it smaller.
# Signatures are added by the release workflow, because they need its identity.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=distros/helm/nvsentinel
version=${VERSION:-$(sed -n 's/^appVersion: *//p' $chart/Chart.yaml)}
out=bin/release
platforms=${PLATFORMS:-linux/amd64,linux/arm64}
source=https://github.com/nvidia/nvsentinel

fail() {
	echo "release: $1" >&2
	exit "${2:-1}"
}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] || fail "VERSION is $version: must be a semantic version without v" 2
if [ -z "${DRY_RUN:-}" ]; then
	[ -n "${REGISTRY:-}" ] || fail "REGISTRY names the registry and repository, or set DRY_RUN=1" 2
	[ -z "$(git status --porcelain)" ] || fail "the working tree has changes: commit them first" 2
	grep -qxF "v$version" <<<"$(git tag --points-at HEAD)" || fail "the commit has no tag v$version" 2
	[ -z "${ONLY:-}" ] || fail "ONLY is for dry runs: a release has every image" 2
fi
notes=$(hack/release-notes.sh "$version") || [ -n "${DRY_RUN:-}" ] || exit 2

rm -rf "$out"
mkdir -p "$out" bin/tools
printf '%s\n' "$notes" >bin/release-notes.md
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
echo "== building the tools" >&2
# With the flags of tests/programs, so that what the tests compiled is used.
GOWORK=off CGO_ENABLED=0 go -C hack/tools build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w" -tags=grpcnotrace \
	-o "$PWD/bin/tools/" ./release helm.sh/helm/v4/cmd/helm
insecure=()
if [ -n "${DRY_RUN:-}" ]; then
	content=$(mktemp -d)
	exec {lines}< <(exec bin/tools/release serve --dir "$content" --address "${LISTEN:-127.0.0.1:0}")
	registry=$! # of the substitution
	trap 'kill "$registry" 2>/dev/null || true; rm -rf "$content"' EXIT
	read -r address <&"$lines" || fail "the local registry did not start"
	REGISTRY=$address/nvidia/nvsentinel
	insecure=(--plain-http)
fi

echo "== images to $REGISTRY" >&2
images=bin/images/release
mkdir -p $images
make -s images OUT=$images REGISTRY="$REGISTRY" TAG="$version" PLATFORMS="$platforms" ONLY="${ONLY:-}" BASE="${BASE:-}" BESIDE="${BESIDE:-}" AUTHORITIES="${AUTHORITIES:-}" PUSH=1 >$images.txt
cat $images.txt
awk -v registry="$REGISTRY" -v version="$version" '$3 ~ /^sha256:/ && !seen[$1]++ {print registry "/" $1 ":" version "@" $3}' $images.txt >$out/image-digests.txt
while read -r name; do
	cp "$images/$name".*.json $out/
done < <(sed 's,.*/\([^:]*\):.*,\1,' $out/image-digests.txt)

echo "== chart to oci://$REGISTRY/charts" >&2
bin/tools/helm package $chart --version "$version" --app-version "$version" --destination $out >/dev/null
archive=$out/nvsentinel-$version.tgz
pushed=$(bin/tools/helm push "${insecure[@]}" "$archive" "oci://$REGISTRY/charts" 2>&1) || fail "pushing the chart: $pushed"
digest=$(sed -n 's/^Digest: *//p' <<<"$pushed")
[ -n "$digest" ] || fail "helm push reported no digest: $pushed"
echo "$REGISTRY/charts/nvsentinel:$version@$digest" >$out/chart-digest.txt

if [ -z "${ONLY:-}" ] || [[ ,$ONLY, == *,nvsentinel,* ]]; then
	echo "== command line" >&2
	hack/release-cli.sh "$version" "$out" "$epoch" "$source"
fi

(cd $out && find . -maxdepth 1 -type f ! -name checksums.txt -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >checksums.txt)

echo "== verifying what was published" >&2
bin/tools/release verify --digests $out/image-digests.txt --documents $out --attestations $images.attestations.txt
(cd $out && sha256sum --quiet --check checksums.txt)
pulled=$(mktemp -d)
bin/tools/helm pull "${insecure[@]}" "oci://$REGISTRY/charts/nvsentinel" --version "$version" --destination "$pulled" >/dev/null
cmp "$pulled/nvsentinel-$version.tgz" "$archive"
# The chart names no image that the release lacks.
bin/tools/helm template nvsentinel "$pulled/nvsentinel-$version.tgz" --namespace nvsentinel --set store.secretName=nvsentinel-store \
	--set "image.registry=${REGISTRY%%/*},image.repository=${REGISTRY#*/}" | sed -n 's/^ *\(- \)\?image: "\?\([^"]*\)"\?$/\2/p' | LC_ALL=C sort -u >"$pulled/named.txt"
[ -s "$pulled/named.txt" ] || fail "the chart names no image"
missing=$(sed 's/@.*//' $out/image-digests.txt | grep -vxFf - "$pulled/named.txt" || true)
rm -rf "$pulled"
if [ -n "$missing" ] && [ -z "${ONLY:-}" ]; then
	fail "the chart names images that the release lacks: $missing"
fi
echo "verified the chart, $(wc -l <$out/image-digests.txt) images and $(wc -l <$out/checksums.txt) files in $out"
if [ -n "${DRY_RUN:-}" ] && [ -n "${KEEP:-}" ]; then
	echo "The registry runs until Ctrl-C. To install from it:"
	echo "  helm install nvsentinel oci://$REGISTRY/charts/nvsentinel --plain-http --version $version -n nvsentinel --set image.registry=${REGISTRY%%/*}"
	wait "$registry" || true
fi
