"""plant → collector → batch → spool → writer → hypertable: everything that moves samples."""
