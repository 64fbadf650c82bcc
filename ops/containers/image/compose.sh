#!/usr/bin/env bash
# Provides Docker Compose 2 where the system's packages have none (Debian 12): the plugin of Debian 13's package, taken
# from the mirror that this machine's apt uses. Prints the folder that belongs into DOCKER_CONFIG; empty where `docker
# compose` is there already.
set -euo pipefail

docker compose version >/dev/null 2>&1 && exit 0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/plantlog/docker-cli
plugin=$folder/cli-plugins/docker-compose
if [ ! -x "$plugin" ]; then
    # shellcheck disable=SC2016  # apt's own format
    mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' | grep -m1 -E '^Debian\|Debian\||/debian/?$' |
        cut -d'|' -f3)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work"/{lists,archives}/partial
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$work/sources.list"
    touch "$work/status"
    options=(
        -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
        -o "Dir::State::status=$work/status" -o "Dir::Cache::archives=$work/archives" -o "Dir::Cache::pkgcache="
        -o "Dir::Cache::srcpkgcache=" -o APT::Sandbox::User=root -qq
    )
    apt-get "${options[@]}" update >&2
    (cd "$work" && apt-get "${options[@]}" download docker-compose >&2)
    dpkg-deb --extract "$work"/docker-compose_*.deb "$work/package"
    mkdir -p "${plugin%/*}"
    install -m 755 "$work/package/usr/libexec/docker/cli-plugins/docker-compose" "$plugin.partial"
    mv "$plugin.partial" "$plugin"
fi
DOCKER_CONFIG=$folder docker compose version >&2
echo "$folder"
