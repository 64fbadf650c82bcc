"""Steps of ``up`` for a plant that the simulator serves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from core.config.model import Plant
from core.config.sources import OpcuaSource
from core.errors import OperationError
from core.paths import CHECKOUT, State
from ops.appliance import programs
from ops.appliance.readiness import Progress, wait_until
from ops.appliance.supervisor import Supervisor
from ops.deployment import Deployment


def export(deployment: Deployment, state: State) -> None:
    """Generate the configuration. Raises OperationError."""
    command = [sys.executable, "-P", "-m", "simulator", "export", str(state.plant), *programs.load_options(deployment)]
    if deployment.port is not None:
        # The control's port comes before the health pages'; the devices have as many ports as they need at the end.
        for name, offset in (("health", 1), ("viewer", 7), ("opcua", 8), ("modbus", 9)):
            command += [f"--{name}-port", str(deployment.port + offset)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"the simulator cannot generate the plant:\n{run.stdout}{run.stderr}")


def trust_simulator(plant: Plant, state: State, supervisor: Supervisor) -> None:
    """Wait for the simulator's certificate, if the plant uses a secure channel, and trust it."""
    if not any(isinstance(source, OpcuaSource) and not source.insecure for source in plant.sources):
        return
    certificate = state.simulator / "pki" / "server.der"
    wait_until(
        certificate.exists, Progress(supervisor, state, ["simulator"]), lambda: "no certificate of the simulator"
    )
    state.trusted.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(certificate, state.trusted / "simulator.der")
