"""A release: version, changelog, tag, and the files that users download."""
