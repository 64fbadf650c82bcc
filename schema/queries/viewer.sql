-- What the viewer sends beside the queries of dashboards.

-- name: set_archived_samples
-- Samples of channel $1 for plant.archived_samples, until the transaction ends.
SELECT set_config('plant.archived_' || $1::int, $2::text, true);
