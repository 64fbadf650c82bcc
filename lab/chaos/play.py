"""Plays a schedule: each step when it is due, those of a domain one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lab.chaos.schedule import Step


async def play(
    steps: Sequence[Step], seconds: float, inject: Callable[[Step], Awaitable[None]], progress: Callable[[str], None]
) -> None:
    """Returns when all steps are over, and after ``seconds`` at the earliest."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def inject_when_due(step: Step) -> None:
        await asyncio.sleep(max(0.0, started + step.at - loop.time()))
        async with domains[step.fault.domain]:  # what took longer than planned holds up only its own domain
            progress(f"{loop.time() - started:7.1f} s  {step}")
            await inject(step)

    domains = {step.fault.domain: asyncio.Lock() for step in steps}
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(inject_when_due(step))
        group.create_task(asyncio.sleep(seconds))
