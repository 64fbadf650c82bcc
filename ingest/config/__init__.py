"""plant.toml and its tag lists: what they may say, and reading them."""
