#!/bin/sh
# Makes the cluster where there is none, then becomes the server: as the official images do it, in the same variables.
#
# POSTGRES_USER, POSTGRES_DB, POSTGRES_PASSWORD_FILE, POSTGRES_INITDB_ARGS, PGDATA; arguments go to the server.
set -eu

if [ "$(id -u)" = 0 ]; then
    # The secret is readable by its owner and by root: as the server's user, it is read from a copy in memory.
    install -o postgres -g postgres -m 600 "$POSTGRES_PASSWORD_FILE" /tmp/password
    export POSTGRES_PASSWORD_FILE=/tmp/password
    install -d -o postgres -g postgres -m 700 "$(dirname "$PGDATA")"
    install -d -o postgres -g postgres -m 775 /run/postgresql
    [ ! -e "$PGDATA" ] || find "$PGDATA" ! -user postgres -exec chown postgres:postgres {} + # of another image
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    rm -rf "$PGDATA.partial" # a kill leaves nothing that looks whole
    # shellcheck disable=SC2086 # several options
    initdb --pgdata="$PGDATA.partial" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" \
        $POSTGRES_INITDB_ARGS
    echo "host all all all scram-sha-256" >> "$PGDATA.partial/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$PGDATA.partial" postgres > /dev/null
    mv "$PGDATA.partial" "$PGDATA"
fi
rm -f /tmp/password
exec "$@"
