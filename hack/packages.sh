#!/usr/bin/env bash
# Makes sure that the named Debian packages are there. As root it installs what
# is missing and prints it; otherwise it prints the one command and stops with 2.
set -euo pipefail
have() {
	case "$1" in
	gcc) command -v gcc >/dev/null && echo 'int main(void){return 0;}' | gcc -x c -o /dev/null - 2>/dev/null ;;
	postgresql) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;;
	python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
	*) dpkg -s "$1" >/dev/null 2>&1 ;;
	esac
}
missing=()
for p in "$@"; do
	have "$p" || { missing+=("$p"); [ "$p" = gcc ] && missing+=(libc6-dev); }
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "missing packages; install them with:  sudo apt-get install -y ${missing[*]}" >&2
	exit 2
fi
echo "installing missing packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# A freshly installed server must not start: the tests run their own.
if [ ! -e /usr/sbin/policy-rc.d ]; then
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod +x /usr/sbin/policy-rc.d
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
log=$(mktemp)
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "installing ${missing[*]} failed" >&2
	exit 2
fi
rm -f "$log"
