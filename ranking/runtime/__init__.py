"""The serving half of ranking: from a call to ranked candidates. No torch, no server.

Handlers (in `services.ranker`) translate, the pipeline decides, engines compute.
"""
