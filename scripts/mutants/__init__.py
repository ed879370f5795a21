"""Changes of the program that no test notices."""
