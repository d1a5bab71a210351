#!/usr/bin/env bash
# Runs the two commands of the README, make demo and make test, on a new minimal Debian 12 with make, gcc, git and Go, an empty
# home folder and empty caches, in mount and pid namespaces of its own. The network is that of the machine, as is its
# configuration: proxies, certificates, name servers, and the registries of apt, Go and npm.
set -euo pipefail

cleanUp() { # removes what the namespaces do not: network devices and control groups of clusters, and the folder
	trap '' INT TERM HUP
	if [ -n "${inside-}" ]; then
		kill -KILL -1 2>/dev/null || true # all processes of the pid namespace but this one
		[ -z "$(ls /var/lib/everynode-local 2>/dev/null)" ] || inFresh go -C local run ./cmd/everynode-local down --all
	else
		echo "== removing $dir"
		if [ -n "${namespaces-}" ]; then
			kill -TERM "$(cat "/proc/$namespaces/task/$namespaces/children")" || kill -KILL "$namespaces" || true
			wait "$namespaces" || true
		fi
		rm -rf --one-file-system "$dir"
	fi
}

inFresh() { (cd /root/everynode && exec env -i "${environment[@]}" "$@"); }

run() { # runs a command in the background, because bash handles signals between commands and in wait
	echo "== $*" && local start=$SECONDS
	inFresh "$@" & wait $!
	times+="$* has taken $((SECONDS - start)) s"$'\n'
}

if [ $# = 0 ]; then
	cd "$(dirname "$0")/.."
	[ "$(uname -s):$(id -u)" = Linux:0 ] || { echo "make test-fresh needs Linux and root" >&2; exit 1; }
	command -v debootstrap >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends debootstrap debian-archive-keyring; } ||
		{ echo "make test-fresh needs debootstrap" >&2; exit 1; }
	dir="$(mktemp -d "${TMPDIR:-/var/tmp}/everynode-fresh-XXXXXX")"
	trap cleanUp EXIT
	trap 'exit 130' INT TERM HUP
	export STEP="${STEP:-all}"
	setsid unshare --mount --pid --fork --kill-child "$0" "$dir/root" & namespaces=$!
	code=0
	wait "$namespaces" || code=$?
	namespaces=''
	exit "$code"
fi

inside=yes root="$1" times='' environment=(HOME=/root PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin)
trap 'exit 143' TERM
for name in {HTTP,HTTPS,NO}_PROXY {http,https,no}_proxy TERM; do
	[ -z "${!name-}" ] || environment+=("$name=${!name}")
done
for name in GOPROXY GOSUMDB GOPRIVATE GONOPROXY GONOSUMDB GOINSECURE; do environment+=("$name=$(go env "$name")"); done

echo "== making a root folder of Debian 12"
# shellcheck disable=SC2016 # apt-get replaces it
mirror="$(apt-get indextargets 'Codename: bookworm' --format '$(REPO_URI)' 2>/dev/null | head -n 1)" || true
debootstrap --variant=minbase --include=make,gcc,libc6-dev,ca-certificates,git bookworm "$root" "${mirror:-http://deb.debian.org/debian}" & wait $!
cp -a "$(go env GOROOT)" "$root/usr/local/go"
git clone -q --no-hardlinks . "$root/root/everynode"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
[ ! -f "${SSL_CERT_FILE-}" ] || cp -L "$SSL_CERT_FILE" "$root/usr/local/share/ca-certificates/host.crt"
[ ! -f ~/.npmrc ] || cp ~/.npmrc "$root/root/"
apt-config dump 2>/dev/null | grep '^Acquire::\(Check\|http\|https\|ForceIPv\)' > "$root/etc/apt/apt.conf.d/99host" || true

mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
cd "$root"
pivot_root . . # the root folder of the machine is then mounted over the new one
umount -l .
cd /
trap cleanUp EXIT
inFresh update-ca-certificates
if [ "$STEP" = all ]; then
	run make demo
	run make demo-down
	run make test
else
	read -r -a step <<<"$STEP"
	run make "${step[@]}"
fi
printf '%s' "$times"
