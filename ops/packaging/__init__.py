"""plantlog as a package of Debian and of RPM: what is in it, and what it does when it comes and goes."""
