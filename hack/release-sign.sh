#!/usr/bin/env bash
# Signs what hack/release.sh published, without a key, with the identity of the workflow that
# runs it: each image, the chart, the documents about the images and the checksums. It needs
# cosign 3 and an identity token (COSIGN_YES=true answers its question).
set -euo pipefail
cd "$(dirname "$0")/../bin/release"
command -v cosign >/dev/null || { echo "release-sign: cosign is missing: install version 3" >&2; exit 2; }
# The registry finds a signature by the digest, so the tag is not part of the name.
while read -r image; do
	cosign sign --yes "${image%:*@*}@${image#*@}"
done < <(cat image-digests.txt chart-digest.txt)
predicate=$(mktemp)
trap 'rm -f "$predicate"' EXIT
while read -r subject type file; do
	case $type in
	slsaprovenance1) jq .predicate "$file" >"$predicate" ;; # cosign writes the statement around it
	*) cp "$file" "$predicate" ;;
	esac
	cosign attest --yes --type "$type" --predicate "$predicate" "$subject"
done <../images/release.attestations.txt
cosign sign-blob --yes --bundle checksums.txt.sigstore.json checksums.txt
