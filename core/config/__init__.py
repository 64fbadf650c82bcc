"""plant.toml and its tag lists: model, validation and loading."""
