"""``python -m ops.containers.certificate``: issue the certificate of the database's container, before it starts."""

from __future__ import annotations

import sys

from core.errors import OperationError, SourceError
from core.paths import State
from ops.postgres.binaries import provide
from ops.postgres.mounted import cluster_of

if __name__ == "__main__":
    state = State.current()
    try:
        state.claim()
        cluster_of(state.root, provide(state.root, print)).renew_certificate()
    except (OperationError, SourceError, OSError) as error:
        sys.exit(f"the certificate of the database: {error}")
