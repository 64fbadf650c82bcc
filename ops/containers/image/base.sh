#!/usr/bin/env bash
# Makes the base image of compose.debian.yml: a minimal Debian 13 by debootstrap, from the mirror that this machine's apt
# uses. With --pull an image of that name is pulled from a registry instead, where one can be reached.
#
#     ops/containers/image/base.sh [--pull IMAGE]
#
# The image is plantlog-debian:13. Nothing is done where there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."

image=plantlog-debian:13
release=trixie
docker image inspect "$image" >/dev/null 2>&1 && exit 0

if [ "${1:-}" = --pull ] && timeout 120 docker pull --quiet "$2"; then
    docker tag "$2" "$image"
    exit 0
fi

command -v debootstrap >/dev/null || {
    echo "debootstrap is missing: apt-get install debootstrap" >&2
    exit 1
}
# Origin, suite and address of every archive that apt is told to use; before the first `apt-get update` the first two
# are not known, and addresses have to speak for themselves.
# shellcheck disable=SC2016  # apt's own format
archives=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' | sort -u)
address() { grep -m1 -E "$1" <<<"$archives" | cut -d'|' -f3; }
main=$(address '^Debian\|Debian\||/debian/?$') || true
security=$(address '^Debian\|Debian-Security\||/debian-security/?$') || true
[ -n "$main" ] || {
    echo "no Debian mirror found in apt's configuration (/etc/apt/sources.list, /etc/apt/sources.list.d)" >&2
    exit 1
}

options=(--variant=minbase)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ ! -e "$keyring" ] || options+=("--keyring=$keyring")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root" # that of the image, in which others run, too
debootstrap "${options[@]}" "$release" "$root" "$main" >&2
{
    echo "deb $main $release main"
    echo "deb $main $release-updates main"
    [ -z "$security" ] || echo "deb $security $release-security main"
} >"$root/etc/apt/sources.list"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar --create --numeric-owner --one-file-system --directory "$root" . | docker import - "$image" >&2
