"""How many samples a question has to read, as far as that is known before."""

from __future__ import annotations

from core.installation import ALL
from core.timestamps import begin
from history.questions.database_request import request_of
from schema.question_files import question
from tests.integration.history.sealed_plant import DAY, SealedPlant


async def test_packed_hours_tell_how_much_there_is_to_read(plant: SealedPlant) -> None:
    """Two minutes of an hour, at 1 Hz; until they are packed, an hour may be full of samples."""
    arguments = {"since": begin(DAY, 5).isoformat(), "until": begin(DAY, 7).isoformat(), "reference": "1 h"}

    async def rate() -> float:
        request = await request_of(plant.state, question("first_mover"), arguments, None, ALL)
        return request.rate

    assert await rate() == 1.0
    await plant.pack()
    assert await rate() == 120 / 3600
