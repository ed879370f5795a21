"""What is wrong, as rows of the table FINDINGS, and the words for it."""
