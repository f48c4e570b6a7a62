"""The ranker process: gRPC and HTTP over one store and the bundles it was given."""
