"""A plan that is there: shown, compared with another one, edited, cut into waves."""
