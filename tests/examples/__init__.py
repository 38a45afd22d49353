"""The programs in examples/, as their users run them."""
