# What compose.debian.yml takes from Debian's packages instead of a registry's images.
ARG BASE=plantlog-debian:13

# PostgreSQL 17 with TimescaleDB's Apache-2 edition. It takes the settings of the official images.
FROM ${BASE} AS database
RUN mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        postgresql-17 postgresql-17-timescaledb \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/17/bin:$PATH PGDATA=/var/lib/postgresql/data/pgdata
COPY ops/image/database.sh /usr/local/bin/database.sh
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/database.sh"]
CMD ["postgres"]

FROM ${BASE} AS prometheus
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o nobody -g nogroup /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]
