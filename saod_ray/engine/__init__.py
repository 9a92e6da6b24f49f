"""Ray: clusters and what runs on them."""
