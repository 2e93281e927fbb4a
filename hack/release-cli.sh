#!/usr/bin/env bash
# Writes an archive of the command line for each platform and the krew manifest that lists them:
#   hack/release-cli.sh VERSION FOLDER EPOCH SOURCE
# Two runs on the same sources write the same archives.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: hack/release-cli.sh VERSION FOLDER EPOCH SOURCE} out=$2 epoch=$3 source=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOWORK=off CGO_ENABLED=0 go -C hack/tools build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w" -tags=grpcnotrace -o "$PWD/bin/tools/" ./release
manifest=$out/krew.yaml
cat >"$manifest" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nvsentinel
spec:
  version: v$version
  homepage: $source
  shortDescription: Show and control the repair of GPU nodes
  description: |
    Shows the state of each GPU node that NVSentinel quarantines, drains or
    repairs, explains why, and releases nodes or pauses remediation.
  platforms:
END
for platform in ${CLI_PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}; do
	os=${platform%/*} arch=${platform#*/}
	name=nvsentinel_${version}_${os}_$arch.tar.gz
	dir=$work/$os-$arch
	mkdir "$dir"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -tags=grpcnotrace \
		-ldflags "-s -w -X github.com/nvidia/nvsentinel/internal/daemon.version=$version" -o "$dir/nvsentinel" ./cli/nvsentinel
	cp LICENSE NOTICE "$dir"
	bin/tools/release licenses --program "$dir/nvsentinel" --dir "$dir"
	tar --create --directory "$dir" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$epoch" LICENSE NOTICE licenses nvsentinel | gzip -n9 >"$out/$name"
	cat >>"$manifest" <<END
  - selector:
      matchLabels:
        os: $os
        arch: $arch
    uri: $source/releases/download/v$version/$name
    sha256: $(sha256sum "$out/$name" | cut -d' ' -f1)
    bin: nvsentinel
END
done
