#!/usr/bin/env bash
# Builds Telegraf with only the plugins that the configurations in this folder use, and prints where it is.
#
# The package that the vendor ships has them all and does as well: this is for machines that reach a Go module proxy
# and nothing else. Made once for each version and set of plugins, in the user's cache; `nice` and a limit of time are
# the caller's.
set -euo pipefail

version=1.37.2
plugins=(
    inputs.cpu inputs.disk inputs.diskio inputs.mem inputs.mqtt_consumer inputs.net inputs.postgresql_extensible
    inputs.processes inputs.prometheus inputs.system outputs.influxdb_v2 parsers.influx parsers.json_v2
    parsers.prometheus processors.template secretstores.docker
)

key=$(printf '%s\n' "$version" "${plugins[@]}" | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/plantlog/telegraf-$version-$key
if [ ! -x "$folder/telegraf" ]; then
    command -v go >/dev/null || {
        echo "Go is required to build Telegraf: apt-get install golang-go, or install the vendor's Telegraf" >&2
        exit 1
    }
    mkdir -p "$folder"
    partial=$(mktemp -d "$folder/partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    # The checksum database lacks modules of this owner.
    GOFLAGS="-mod=mod -buildvcs=false" GONOSUMDB="${GONOSUMDB:+$GONOSUMDB,}github.com/SAP/*" GOBIN=$partial \
        go install -tags "custom ${plugins[*]}" -trimpath \
        -ldflags "-s -w -X github.com/influxdata/telegraf/internal.Version=$version" \
        "github.com/influxdata/telegraf/cmd/telegraf@v$version" >&2
    mv "$partial/telegraf" "$folder/telegraf" # whole or not at all
fi
echo "$folder/telegraf"
