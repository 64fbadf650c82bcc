"""The command line: commands and their options. What a command does is in the other packages."""
