"""What tests of this project and of its users need: simulated histories and bookie folders."""
