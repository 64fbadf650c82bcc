"""The push endpoint: gateways send line protocol over HTTP, as to InfluxDB's v2 write API."""
