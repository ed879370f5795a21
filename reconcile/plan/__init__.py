"""Plans: the exact writes that bring a store to what bookies show, and how people read and change them."""
