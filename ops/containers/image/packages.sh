#!/bin/sh
# Installs packages in an image of Debian or, by their names there, of Alpine, which TimescaleDB's image is made of.
set -eu

if ! command -v apk >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    rm -rf /var/lib/apt/lists/*
    exit
fi
for package; do
    shift
    case $package in
        pgbackrest) set -- "$@" pgbackrest shadow ;; # usermod
        python3) set -- "$@" python3 util-linux ;; # prlimit
        python3-venv) ;; # python3 has it
        *) set -- "$@" "$package" ;;
    esac
done
apk add --no-cache --quiet "$@"
