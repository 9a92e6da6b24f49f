"""The engine on Ray: clusters, plans, the pipeline, and scoring on a cluster."""
